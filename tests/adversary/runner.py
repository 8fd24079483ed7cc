"""Runs cases: each in a container of its own, without network, on a fresh copy of the image."""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import uuid
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import docker
from adversary.cases import Case, Part
from adversary.judge import Verdict, judged, problem
from adversary.packages import offer
from adversary.stacks import IMAGE_PYTHON, PORT, SITE_PACKAGES, Stack
from docker.errors import ContainerError
from docker.types import Mount

from warpfront.system.process import Command, run

HERE = Path(__file__).parent
PROGRAM = "/opt/warpfront/bin/warpfront-guard"
OLDEST_PIP = "23.0.1"
# With what they need, for an environment each: no case's index has them. What pdm 2.29 finds
# without its own lock is too new for it.
_MANAGERS = ("poetry", "pdm[locked]", "py-rattler")
NAMES = "localhost/warpfront/adversary"
_SYSTEM_PYTHON = (
    "for p in /usr/bin/python3 /usr/local/bin/python3; do "
    '[ -x $p ] && exec $p -I -S /adversary/inside.py "$1"; done'
)
_TIME_LIMIT_SECONDS = 400
_START = ("timeout", str(_TIME_LIMIT_SECONDS), "sh", "-c", _SYSTEM_PYTHON, "sh")

_CODE_OF_GUARD = """
import ast, hashlib, pathlib
digest, documented = hashlib.sha256(), (ast.Module, ast.ClassDef, ast.FunctionDef)
for path in sorted(pathlib.Path("/opt/warpfront/lib").rglob("*.py")):
    tree = ast.parse(path.read_bytes())
    for node in ast.walk(tree):
        if isinstance(node, documented) and ast.get_docstring(node):
            node.body[0] = ast.Pass()
    digest.update(f"{path.name}\\n{ast.dump(tree)}\\n".encode())
print(digest.hexdigest()[:12])
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One case on one image with one tool. `problem` is "" where it came out as expected."""

    case: str
    tool: str
    image: str
    verdict: Verdict
    problem: str
    seconds: float
    measured: Mapping[str, Any]


Tell = Callable[[Result], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """pip as Python 3.11 ships it, today's pip, today's uv, and what builds: wheels from outside,
    not part of any image. `versions` maps a tool to its version.
    """

    folder: Path
    versions: Mapping[str, str]


def fetch_tools(folder: Path, *, managers: bool = True) -> Tools:
    """Download the tools' wheels where `folder` lacks them, from wherever pip gets its own; those
    of Poetry, pdm and conda only for cases that use `managers`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for wanted in ("uv", f"pip=={OLDEST_PIP}", "pip", "setuptools", "wheel", "packaging"):
        name, _, version = wanted.partition("==")
        found = [path for path in folder.glob(f"{name}-*.whl") if OLDEST_PIP not in path.name]
        if not (any(folder.glob(f"{name}-{version}-*.whl")) if version else found):
            argv = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", wanted)
            run(Command(argv=(*argv, "--dest", str(folder)))).check()
    of_managers = folder / "managers"
    of_managers.mkdir(exist_ok=True)
    for manager in _MANAGERS if managers else ():
        if any(of_managers.glob(f"{manager.partition('[')[0].replace('-', '_')}-*.whl")):
            continue
        argv = (sys.executable, "-m", "pip", "download", "--quiet", "--only-binary", ":all:")
        more = ("--python-version", "3.11", "--dest", str(of_managers), manager)
        run(Command(argv=(*argv, *more))).check()
    if not (folder / "bin" / "uv").exists():
        with zipfile.ZipFile(_newest(folder, "uv")) as wheel:
            member = next(name for name in wheel.namelist() if name.endswith("/scripts/uv"))
            (folder / "bin").mkdir(exist_ok=True)
            (folder / "bin" / "uv").write_bytes(wheel.read(member))
        (folder / "bin" / "uv").chmod(0o755)
    versions = {"pip-old": OLDEST_PIP}
    versions |= {name: _newest(folder, name).name.split("-")[1] for name in ("pip", "uv")}
    return Tools(folder=folder, versions=versions)


def _newest(folder: Path, name: str) -> Path:
    return max(folder.glob(f"{name}-*.whl"), key=lambda path: _key(path.name))


def _key(name: str) -> list[int]:
    return [int(part) for part in name.split("-")[1].split(".") if part.isdigit()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arena:
    """A stack with what is offered against it, and the image that each tool is tried on."""

    client: docker.DockerClient
    stack: Stack
    tools: Tools
    offered: Path
    images: Mapping[str, str]
    guard: str = ""
    known: dict[tuple[str, str, str], Result] = field(default_factory=dict)
    untouched: dict[str, dict[str, Any]] = field(default_factory=dict)
    lock: Any = field(default_factory=threading.Lock)

    def run(self, case: Case, tool: str, part: Part | None = None) -> Result:
        """Raises nothing: a container that went wrong is a `broken` verdict. Runs everything once:
        what was run before is known.
        """
        key = (case.id, tool, part.id if part else "")
        if key not in self.known:
            self.known[key] = self._run(case, tool, part)
        return self.known[key]

    def _run(self, case: Case, tool: str, part: Part | None) -> Result:
        measured = self._measured(self._job(case, tool, part), self.images[tool])
        if measured.get("same"):
            measured |= self._of_nothing(tool)
        verdict = judged(measured, self.stack)
        return Result(
            case=case.id,
            tool=tool,
            image=self.stack.kind,
            verdict=verdict,
            problem=problem(case, tool, self.stack, verdict),
            seconds=float(measured.get("seconds", 0)),
            measured=measured,
        )

    def _of_nothing(self, tool: str) -> dict[str, Any]:
        """What import and verify come to where nothing was done: measured once an image."""
        image = self.images[tool]
        with self.lock:
            if image not in self.untouched:
                nothing = Case(id="", title="", how="", commands={tool: "true"})
                job = {**self._job(nothing, tool, None), "ablated": True}  # asked all the same
                found = self._measured(job, image)
                self.untouched[image] = {name: found[name] for name in ("probe", "verify")}
            return self.untouched[image]

    def run_all(
        self, wanted: Iterable[tuple[Case, str]], tell: Tell | None = None, workers: int = 2
    ) -> list[Result]:
        """Every pair of case and tool, `workers` at a time, in the order given."""

        def one(pair: tuple[Case, str]) -> Result:
            result = self.run(*pair)
            if tell is not None:
                tell(result)
            return result

        with ThreadPoolExecutor(workers) as pool:
            try:
                return list(pool.map(one, wanted))
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def _job(self, case: Case, tool: str, part: Part | None) -> dict[str, Any]:
        environment = {name: self.stack.fill(text) for name, text in case.environment.items()}
        return {
            "port": PORT,
            "site": SITE_PACKAGES,
            "verify": PROGRAM,
            "remove": [self.stack.fill(part.remove)] if part and part.remove else [],
            "ablated": part is not None,
            "setup": self.stack.fill(case.setup) or "true",
            "command": self.stack.fill(case.commands[tool]),
            "probe": self.stack.fill(case.probe),
            "user": case.user,
            "unset": [*case.unset, *(part.unset if part else ())],
            "environment": environment,
            "full": case.full,
            "free": [*self.stack.free, *case.free],
        }

    def _measured(self, job: dict[str, Any], image: str) -> dict[str, Any]:
        mounts = [
            Mount(f"/adversary/{name}", str(path), type="bind", read_only=True)
            for name, path in (
                ("index", self.offered / "index"),
                ("projects", self.offered / "projects"),
                ("inside.py", HERE / "inside.py"),
                ("probe.py", HERE / "probe.py"),
                ("managers", self.tools.folder / "managers"),
            )
        ]
        uv = str(self.tools.folder / "bin" / "uv")
        mounts.append(Mount("/usr/local/bin/uv", uv, type="bind", read_only=True))
        try:
            said = self.client.containers.run(
                image,
                [*_START, json.dumps(job)],
                network_mode="none",
                mounts=mounts,
                environment=_environment(job["port"]),
                remove=True,
                entrypoint=[],
            )
        except ContainerError as error:
            stderr = error.stderr or b""
            return {"error": f"the container ended with {error.exit_status}: {stderr[-2000:]!r}"}
        line = said.decode().strip().splitlines()[-1]
        found: dict[str, Any] = json.loads(line.removeprefix("@result "))
        return found


def _environment(port: int) -> dict[str, str]:
    """The index on loopback, in the place of PyPI, and what an image without a guard would need
    too; none of the guard's channels.
    """
    return {
        "PIP_INDEX_URL": f"http://127.0.0.1:{port}/pypi/",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_ROOT_USER_ACTION": "ignore",
        "UV_INDEX_URL": f"http://127.0.0.1:{port}/pypi/",
        "UV_PYTHON": IMAGE_PYTHON,
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_LINK_MODE": "copy",
    }


@contextmanager
def arena(
    client: docker.DockerClient,
    stack: Stack,
    tools: Tools,
    pips: Sequence[str] = ("pip-old", "pip"),
) -> Iterator[Arena]:
    """Make what is offered, and an image for each of `pips` beside uv's; all are gone afterwards.
    The image gets a name of its own first: somebody may build it anew meanwhile.
    """
    name = f"{NAMES}-{stack.kind}"
    base = f"{name}:{uuid.uuid4().hex[:8]}"
    client.images.get(stack.reference).tag(base)
    made = {base}
    with tempfile.TemporaryDirectory(prefix="adversary-") as folder:
        try:
            images = {"uv": base}
            for tool in pips:
                images[tool] = with_pip(client, base, tools, tools.versions[tool])
                made.add(images[tool])
            offered = offer(Path(folder), stack)
            add_tools(offered / "index", tools)
            guard = guard_of(client, base)
            yield Arena(
                client=client,
                stack=stack,
                tools=tools,
                offered=offered,
                images=images,
                guard=guard,
            )
        finally:
            for image in sorted(made):
                client.images.remove(image)


def guard_of(client: docker.DockerClient, image: str) -> str:
    """What the code of the guard in an image is, in a few digits: a docstring is no other guard."""
    said = client.containers.run(
        image,
        ["python3", "-I", "-S", "-c", _CODE_OF_GUARD],
        network_mode="none",
        remove=True,
        entrypoint=[],
    )
    return str(said.decode().strip())


def add_tools(index: Path, tools: Tools) -> None:
    """The tools are on the index too, as builds and upgrades need them."""
    for path in sorted(tools.folder.glob("*.whl")):
        page = index / "pypi" / path.name.split("-")[0]
        page.mkdir(exist_ok=True)
        (index / "files" / path.name).write_bytes(path.read_bytes())
        with (page / "index.html").open("a") as file:
            file.write(f'<a href="/files/{path.name}">{path.name}</a>\n')


def with_pip(client: docker.DockerClient, base: str, tools: Tools, version: str) -> str:
    """The image with this pip in its environment: itself where that is what it has."""
    has = client.containers.run(base, ["pip", "--version"], network_mode="none", remove=True)
    if has.decode().split()[1] == version:
        return base
    mount = Mount("/tools", str(tools.folder), type="bind", read_only=True)
    wheel = f"/tools/pip-{version}-py3-none-any.whl"
    command = ["python3", "-m", "pip", "install", "--quiet", "--no-index", wheel]
    container = client.containers.run(
        base, command, mounts=[mount], detach=True, network_mode="none"
    )
    try:
        ended = container.wait(timeout=_TIME_LIMIT_SECONDS)
        assert ended["StatusCode"] == 0, container.logs().decode()
        name, _, tag = base.rpartition(":")
        container.commit(name, tag=f"{tag}-pip-{version}")
    finally:
        container.remove(force=True)
    return f"{base}-pip-{version}"
