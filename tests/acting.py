"""A forge on this machine: `act` runs workflows without containers, on stand-ins for the actions
that they use. A job has a copy of the repository and nothing else of the jobs before it.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import artifact_store

from warpfront.ci.actions import pinned_actions

REPOSITORY_NAME = "me/mine"
ACT = Path(sys.executable).parent / "act"
# What a job of these workflows gives to any of the actions.
_INPUTS = (
    *("name", "path", "pattern", "overwrite", "retention-days"),
    *("persist-credentials", "fetch-depth", "python-version"),
)
_STORES = {"upload-artifact": "name", "download-artifact": "pattern"}
_ENDED = re.compile(r"^\[[^/\]]+/(?P<job>[^\]]+?) *\] 🏁  Job (?P<how>\w+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Acted:
    """A run: its exit code, all that was printed, and the store of artifacts that it left."""

    code: int
    said: str
    store: Path

    @property
    def jobs(self) -> dict[str, str]:
        """Job -> how it ended."""
        return {one["job"]: one["how"] for one in _ENDED.finditer(self.said)}

    def expect(self, code: int) -> Acted:
        assert self.code == code, f"exit code {self.code}\n{self.said[-8000:]}"
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalForge:
    """A repository with workflows, and the `program` that its entry points call. `secrets` and
    `variables` are what the repository and its environments hold.
    """

    root: Path
    folder: Path
    program: Path
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    secrets: Mapping[str, str] = dataclasses.field(default_factory=dict)
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def run(self, event: str, payload: object | None = None, timeout: float = 240) -> Acted:
        """Everything that an event starts."""
        store = self.folder / "store"
        shutil.rmtree(store, ignore_errors=True)
        store.mkdir(parents=True)
        file = self.folder / "event.json"
        file.write_text(json.dumps(payload or {}), encoding="utf-8")
        asked = [str(ACT), event, "--eventpath", str(file), "--action-offline-mode"]
        asked += [f"--platform={label}=-self-hosted" for label in _labels(self.root)]
        jobs = {
            "WARPFRONT_PYTHON": str(self.program),
            "GITHUB_REF_PROTECTED": "true",  # act does not know it
            **_of_jobs({**os.environ, **self.environment}),
        }
        asked += [f"--env={name}={text}" for name, text in jobs.items()]
        asked += [f"--var={name}={text}" for name, text in self.variables.items()]
        # In a file: jobs have the environment of act itself.
        hidden = self.folder / "secrets.yml"
        hidden.write_text(json.dumps(dict(self.secrets)), encoding="utf-8")
        asked += ["--secret-file", str(hidden)]
        asked += self._stubs(store)
        own = {"HOME": str(self.folder), "XDG_CACHE_HOME": str(self.folder / "cache")}
        ran = subprocess.run(
            asked,
            cwd=self.root,
            env={**os.environ, **self.environment, **own},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        return Acted(code=ran.returncode, said=ran.stdout + ran.stderr, store=store)

    def _stubs(self, store: Path) -> list[str]:
        words = []
        for name, (uses, _) in pinned_actions().items():
            folder = self.folder / "actions" / name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "action.yml").write_text(json.dumps(_action(name, store)), encoding="utf-8")
            place, _, commit = uses.partition("@")
            words += ["--local-repository", f"{place}@{commit}={folder}"]
        return words


def _of_jobs(environment: Mapping[str, str]) -> dict[str, str]:
    """What a machine says to the jobs that it runs: where its engine, cache and indexes are."""
    names = ("DOCKER_", "PIP_", "UV_", "XDG_", "PYTHONPATH", "SSL_", "BUILDX_", "REQUESTS_", "PATH")
    return {name: text for name, text in environment.items() if name.startswith(names)}


def _action(name: str, store: Path) -> dict[str, object]:
    step: dict[str, object] = {"shell": "bash", "run": "true"}
    if name in _STORES:
        script, verb = Path(artifact_store.__file__), name.partition("-")[0]
        step["run"] = f'{sys.executable} {script} {verb} {store} "$WHAT" "$WHERE"'
        what = f"${{{{ inputs.{_STORES[name]} }}}}"
        step["env"] = {"WHAT": what, "WHERE": "${{ inputs.path }}"}
    return {
        "name": name,
        "inputs": {name: {"required": False} for name in _INPUTS},
        "runs": {"using": "composite", "steps": [step]},
    }


def _labels(root: Path) -> set[str]:
    text = "".join(path.read_text() for path in (root / ".github/workflows").glob("*.yml"))
    return set(re.findall(r"^    runs-on: (\S+)$", text, re.MULTILINE))


def with_forge(
    root: Path,
    folder: Path,
    program: str,
    *,
    installs: bool = False,
    logs_in: bool = False,
    **environment: str,
) -> LocalForge:
    """Everything committed, as it was written. `program` is a shell script in the place of Python;
    `$PYTHON` is the real one: what each job `installs` as ci/setup.sh says, or else this one, and
    nothing is installed. `docker login` is real if it `logs_in`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    script, python = folder / "program", ".venv/bin/python" if installs else sys.executable
    script.write_text(f"#!/bin/bash\nset -e\nPYTHON={python}\n{program}")
    script.chmod(0o755)
    programs = _programs(folder / "bin", installs=installs, logs_in=logs_in)
    with (root / ".gitignore").open("a") as file:
        file.write("/output*\n" if installs else "/output*\n/build/\n/handover/\n/.venv/\n")
    commit(root)
    path = f"{programs}:{environment.get('PATH', os.environ['PATH'])}"
    return LocalForge(
        root=root, folder=folder, program=script, environment={**environment, "PATH": path}
    )


_INSTALLS = """\
#!/bin/sh
case "$*" in "-m venv .venv") mkdir -p .venv/bin; ln -sf /bin/true .venv/bin/python ;; esac
"""


def _programs(folder: Path, *, installs: bool, logs_in: bool) -> Path:
    """What stands in front of a job's programs: a python3 that makes empty environments, if nothing
    is installed, and a docker that knows nobody.
    """
    folder.mkdir(exist_ok=True)
    python = Path(sys.base_prefix) / "bin" / "python3"
    scripts = {"python3": f'#!/bin/sh\nexec {python} "$@"\n' if installs else _INSTALLS}
    if not logs_in:
        real = shutil.which("docker") or "/bin/false"
        scripts["docker"] = f'#!/bin/sh\n[ "$1" = login ] || exec {real} "$@"\n'
    for name, text in scripts.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


def commit(root: Path) -> str:
    """Everything in `root`, as the newest commit."""
    who = ("-c", "user.name=Nobody", "-c", "user.email=nobody@example.test")
    if not (root / ".git").exists():
        subprocess.run(["git", "init", "--quiet", "--initial-branch=main"], cwd=root, check=True)
        where = ("git", "remote", "add", "origin", f"https://github.com/{REPOSITORY_NAME}")
        subprocess.run(where, cwd=root, check=True)
    for words in (("add", "--all"), (*who, "commit", "--quiet", "-m", "x")):
        subprocess.run(["git", *words], cwd=root, check=True, capture_output=True)
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=root, check=True, capture_output=True, text=True
    )
    return head.stdout.strip()
