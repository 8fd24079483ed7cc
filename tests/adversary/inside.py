"""One case, inside a container of its own: serve the stand-in index, take the stack's fingerprint,
run the commands, and measure what became of the stack. Prints one line of JSON.

Runs on the system's Python without site-packages (`-I -S`), the standard library only: nothing of
the guard takes part, so that a broken guard cannot hide what happened.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import marshal
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

HERE = Path("/adversary")
Key = tuple[int, int, int, int]
FOLDERS = re.compile(
    r"(torch|torchgen|functorch|torchvision|torchvision\.libs|torchaudio|triton|nvidia|cuda|_rocm.*)\Z"
)
DISTRIBUTIONS = re.compile(
    r"(torch|torchvision|torchaudio|torchgen|torch-.*|triton|triton-.*|pytorch.*|nvidia-.*|cuda-.*"
    r"|rocm.*|amd-torch.*)\Z"
)
TAIL = 6000
TIME_LIMIT_SECONDS = 150


class Quiet(SimpleHTTPRequestHandler):
    """The folder `index`, without a log."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Nobody reads it."""


def serve(port: int) -> None:
    handler = functools.partial(Quiet, directory=str(HERE / "index"))
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def of_the_stack(site: str, free: Sequence[str]) -> Iterator[str]:
    """The entries of site-packages that make up, or would join, a torch stack. What is named in
    `free` does not count.
    """
    for entry in sorted(path.name for path in Path(site).iterdir()):
        name = entry.split("-")[0]
        if entry in free or name in free:
            continue
        if FOLDERS.match(entry) or (
            entry.endswith(".dist-info") and DISTRIBUTIONS.match(normalized(name))
        ):
            yield entry


def fingerprint(site: str, free: Sequence[str]) -> dict[str, Key]:
    """path -> (size, mtime, ctime, inode) of every file of the stack. Nothing inside a container
    can set a ctime, so equal ones mean equal bytes.
    """
    found = {}
    for entry in of_the_stack(site, free):
        for folder, _, names in os.walk(f"{site}/{entry}"):
            for name in names:
                path = f"{folder}/{name}"
                relative = path.removeprefix(f"{site}/")
                if relative.startswith(tuple(f"{one}/" for one in free)):
                    continue
                status = os.lstat(path)
                key = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
                found[relative] = key
    return found


def recorded(site: str, free: Sequence[str]) -> dict[str, str]:
    """path -> its hash before anything was done: as every RECORD says, and of the metadata that a
    RECORD has no hash for (itself, for one) as it is.
    """
    hashes = {}
    for entry in of_the_stack(site, free):
        record = Path(site, entry, "RECORD")
        if record.is_file():
            for path in record.parent.iterdir():
                if path.is_file():
                    hashes[f"{entry}/{path.name}"] = hash_of(path)
            for line in record.read_text().splitlines():
                name, _, rest = line.rpartition(",")[0].rpartition(",")
                if rest.startswith("sha256="):
                    hashes[name.strip('"')] = rest.removeprefix("sha256=")
    return hashes


def hash_of(file: Path) -> str:
    """sha256 as a RECORD spells it."""
    digest = hashlib.sha256(file.read_bytes()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def same_content(site: str, path: str, hashes: Mapping[str, str]) -> bool:
    """Whether a file whose times changed still holds what it held."""
    file = Path(site, path)
    if path.endswith(".pyc"):
        return same_code(file)
    if path not in hashes or not file.is_file():
        return False
    return hash_of(file) == hashes[path]


def same_code(compiled: Path) -> bool:
    """Whether byte code is that of the source beside it."""
    source = compiled.parent.parent / (compiled.name.split(".")[0] + ".py")
    if not source.is_file():
        return False
    expected = compile(source.read_bytes(), str(source), "exec", dont_inherit=True)
    # Not its bytes: a set's order in them changes from one run of the compiler to the next.
    return bool(marshal.loads(compiled.read_bytes()[16:]) == expected)


def changes(
    site: str, before: Mapping[str, Key], hashes: Mapping[str, str], free: Sequence[str]
) -> dict[str, str]:
    """path -> `gone`, `new` or `other content`."""
    after = fingerprint(site, free)
    found = {path: "gone" for path in before if path not in after}
    for path, key in after.items():
        if path not in before:
            if not (path.endswith(".pyc") and same_code(Path(site, path))):
                found[path] = "new"
        elif key != before[path] and not same_content(site, path, hashes):
            found[path] = "other content"
    return found


def run(
    script: str, *, user: str, cwd: str, environment: Mapping[str, str], unset: Sequence[str]
) -> tuple[int, str]:
    """(exit code, what it said). `user` is a number; "0" is root."""
    argv = ["sh", "-c", script]
    if user != "0":
        ids = ["--reuid", user, "--regid", user, "--clear-groups"]
        argv = ["setpriv", *ids, *argv]
    inherited = {name: text for name, text in os.environ.items() if name not in unset}
    home = "/root" if user == "0" else "/home/user"
    try:
        done = subprocess.run(
            argv,
            cwd=cwd,
            env={**inherited, **environment, "HOME": home},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=TIME_LIMIT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        return 124, f"{error.stdout!r}\nno end after {TIME_LIMIT_SECONDS} s"
    return done.returncode, done.stdout


def marked(text: str, mark: str) -> Any:
    """The JSON behind the last line that begins with `mark`, or None."""
    lines = [line for line in text.splitlines() if line.startswith(mark)]
    return json.loads(lines[-1].removeprefix(mark)) if lines else None


def probe(job: Mapping[str, Any], said: str, *, touched: bool, **how: Any) -> dict[str, Any]:
    """What `import torch` comes to: as the command itself did it, else as the case or the default
    says. Only found, not loaded, where nothing of the stack was touched, unless the case is `full`.
    """
    own: dict[str, Any] | None = marked(said, "@probe ")
    if own is not None:
        return {**own, "told": guard_lines(said)}
    light = "" if touched or job["probe"] or job["full"] else " --find"
    script = job["probe"] or f"python3 {HERE / 'probe.py'}{light}"
    code, text = run(script, **how)
    answer: dict[str, Any] | None = marked(text, "@probe ")
    answer = answer or {"ok": False, "error": f"exit code {code}: {text[-600:]}"}
    return {**answer, "told": guard_lines(text)}


def guard_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("warpfront guard: ")]


def verify(program: str, cwd: str, *, depth: str) -> dict[str, Any]:
    """What the guard itself says: `clean`, `findings` (texts), or `gone`. `depth` is an option of
    its command, "" to hash everything.
    """
    if not Path(program).exists():
        return {"state": "gone", "findings": []}
    script = f"{program} verify --json {depth}"
    code, text = run(script, user="0", cwd=cwd, environment={}, unset=())
    # At the beginning of a line: a traceback has brackets, too, and its program ends with 1.
    start = re.search(r"^\[", text, re.MULTILINE)
    if code not in (0, 1) or start is None:
        return {"state": "gone", "findings": [text[-600:]]}
    findings = json.JSONDecoder().raw_decode(text[start.start() :])[0]
    words = [f"{one['part']}: {one['subject']}: {one['text']}" for one in findings]
    return {"state": "findings" if code else "clean", "findings": words[:40]}


def relaxed(program: str) -> list[str]:
    """What the guard's record says was given up on purpose."""
    policy = Path(program).parents[1] / "guard" / "policy.json"
    return sorted(json.loads(policy.read_text())["relaxed"]) if policy.is_file() else []


def work_folder() -> str:
    """A folder that the user may write to, with a home."""
    for path in ("/home/user", "/case"):
        Path(path).mkdir(parents=True, exist_ok=True)
        os.chown(path, 1000, 1000)
    return "/case"


def state(site: str) -> dict[str, tuple[int, int]] | None:
    """path -> (ctime, inode) of whatever decides what an import or the guard's verify says: on
    overlayfs a write below a folder of a lower layer makes the folder anew, so the entries of
    site-packages speak for all below them. None where the file system says nothing of the kind.
    """
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    kinds = [one[one.index("-") + 1] for one in mounts if one[4] == "/"]
    if kinds != ["overlay"] or any(one[4].startswith(("/opt", "/etc/pip", site)) for one in mounts):
        return None
    paths = [site, *(f"{site}/{name}" for name in os.listdir(site))]  # noqa: PTH208 - names are all it takes
    for top in ("/opt/warpfront", "/opt/venv/bin", "/etc", "/case"):
        paths += [f"{folder}/{name}" for folder, _, names in os.walk(top) for name in names]
    paths += [f"{home}/{name}" for home in ("/root", "/home/user") for name in os.listdir(home)]  # noqa: PTH208
    paths += ["/opt/venv/pyvenv.cfg", *map(str, Path("/usr/lib").glob("python3*"))]
    found = {path: os.lstat(path) for path in paths if not path.endswith("/.cache")}
    return {path: (one.st_ctime_ns, one.st_ino) for path, one in found.items()}


def says_nothing_new(job: Mapping[str, Any], said: str) -> bool:
    """Whether import and verify are asked in this case as in an image that nothing was done to."""
    own = ("probe", "full", "ablated", "environment", "unset", "remove")
    return job["user"] == "0" and not any(job[name] for name in own) and "@probe " not in said


def main(job: Mapping[str, Any]) -> dict[str, Any]:
    serve(job["port"])
    cwd = work_folder()
    untouched = state(job["site"])
    how = {"cwd": cwd, "environment": job["environment"], "unset": job["unset"]}
    for script in (*job["remove"], job["setup"]):
        code, said = run(script, user="0", **how)
        if code:
            return {"error": f"the setup ended with {code}: {script}\n{said[-TAIL:]}"}
    site, started = job["site"], time.monotonic()
    free = job["free"]
    hashes, before = recorded(site, free), fingerprint(site, free)
    entries = {path.name for path in Path(site).iterdir()}
    # What an ablated guard says of its own state beforehand is nothing that the case did.
    known = verify(job["verify"], cwd, depth="--quick")["findings"] if job["ablated"] else []
    began = time.monotonic()
    code, said = run(job["command"], user=job["user"], **how)
    seconds = time.monotonic() - began
    same = untouched is not None and untouched == state(site)
    changed = {} if same else changes(site, before, hashes, free)
    arrived = sorted({path.name for path in Path(site).iterdir()} - entries)
    touched = bool(changed) or any(name.endswith(".pth") for name in arrived)
    measured = {
        "exit_code": code,
        "said": said[-TAIL:],
        "seconds": round(seconds, 2),
        "changed": dict(sorted(changed.items())[:40]),
        "changed_counts": {kind: list(changed.values()).count(kind) for kind in changed.values()},
        "arrived": arrived,
        "known": known,
        "relaxed": relaxed(job["verify"]),
        "built": marked(said, "%built "),
        "same": same and says_nothing_new(job, said),
    }
    if not measured["same"]:
        measured["probe"] = probe(job, said, touched=touched, user=job["user"], **how)
        # What was written since the seal is hashed; everything, where the case says so.
        depth = "" if job["full"] else "--light" if changed else "--quick"
        measured["verify"] = verify(job["verify"], cwd, depth=depth)
    return {**measured, "total_seconds": round(time.monotonic() - started, 2)}


if __name__ == "__main__":
    print("@result " + json.dumps(main(json.loads(sys.argv[1]))))
