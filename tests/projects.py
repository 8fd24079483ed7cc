"""Whole projects in temporary folders, for tests that go the real path through child processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from fixed_seeds import run_options
from standins import stand_in_wheel
from warm_start import Forked, fork_invoke

from warpfront.images.engine import embedded

REPOSITORY = Path(__file__).resolve().parents[1]
TORCH = "2.13.0"
CPU_CELL = "cpu-x86_64-py311-torch2130-torch"
BASE = "debian-12"
# The names that this process gave out: their images go with it, and no other run's do.
UNIQUE_IMAGES: list[str] = []
ONLY = """
import sys
from invoke.main import program
from warpfront.pipeline import verifying
from warpfront.commands import adopting as strangers
verifying.SESSIONS = strangers.SESSIONS = {sessions!r}
program.run(["invoke", *sys.argv[1:]])
"""
# What a site says in the environment, and a test must not inherit.
SITE_VARIABLES = (
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "PIP_FIND_LINKS",
    "PIP_CERT",
    "PIP_CONFIG_FILE",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
)


# Runs an engine with its data in a folder, and with the base of small projects.
EngineWithBase = Callable[[Path], AbstractContextManager[embedded.EnginePlace]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a child process ended; `stdout` and `stderr` are all it printed."""

    code: int
    stdout: str
    stderr: str
    seconds: float

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)

    @property
    def said(self) -> str:
        return self.stdout + self.stderr

    def expect(self, code: int) -> Ended:
        assert self.code == code, f"exit code {self.code}, not {code}\n{self.said[-6000:]}"
        assert "Traceback" not in self.said, self.said[-6000:]
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A child process in a session of its own, its output in files of `folder`."""

    child: subprocess.Popen[bytes] | Forked
    folder: Path
    started: float = field(default_factory=time.monotonic)

    @property
    def said(self) -> str:
        """What it has printed so far."""
        return self._read("stdout") + self._read("stderr")

    def send(self, number: signal.Signals) -> None:
        """To the process alone, as `kill` does."""
        self.child.send_signal(number)

    def send_group(self, number: signal.Signals) -> None:
        """To its whole process group, as a terminal does on Ctrl-C."""
        os.killpg(self.child.pid, number)

    def wait_for(self, holds: Callable[[], bool], seconds: float = 300.0) -> None:
        """Until `holds`, while the child lives."""

        def settled() -> bool:
            return holds() or self.child.poll() is not None

        wait_until(settled, seconds)
        assert self.child.poll() is None, f"it ended too early\n{self.said}"

    def wait(self, timeout: float = 300.0) -> Ended:
        try:
            code = self.child.wait(timeout)
        except subprocess.TimeoutExpired:
            self.send(signal.SIGTERM)
            self.child.wait(60)
            raise AssertionError(
                f"it did not end within {timeout:g} s\n{self.said[-6000:]}"
            ) from None
        seconds = time.monotonic() - self.started
        out, err = self._read("stdout"), self._read("stderr")
        return Ended(code=code, stdout=out, stderr=err, seconds=seconds)

    def _read(self, name: str) -> str:
        return (self.folder / name).read_text(encoding="utf-8", errors="replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A folder with matrix.yaml, images/, noxfile.py and tasks.py, and the environment of its
    users.
    """

    root: Path
    environment: dict[str, str] = field(default_factory=dict)

    def invoke(self, *arguments: str, timeout: float = 300.0, **changes: str) -> Ended:
        folder, environment = self._output(), {**self.environment, **changes}
        child = fork_invoke(_seeded(arguments), self.root, environment, folder)
        return Running(child=child, folder=folder).wait(timeout)

    def nox(self, *arguments: str, timeout: float = 300.0) -> Ended:
        return self.start_nox(*arguments).wait(timeout)

    def verify(self, sessions: tuple[str, ...], *arguments: str, timeout: float = 300.0) -> Ended:
        """`warpfront verify` of these sessions alone, which no option of it can say."""
        program = ONLY.format(sessions=sessions)
        return self._start("-c", program, *_seeded(("verify", *arguments))).wait(timeout)

    def start(self, *arguments: str, **changes: str) -> Running:
        return self._start("-m", "invoke", *_seeded(arguments), **changes)

    def start_nox(self, *arguments: str) -> Running:
        seeded = (*run_options(), *arguments)
        return self._start("-m", "nox", "--session", "verify", "--", *seeded)

    def _output(self) -> Path:
        # A project of a test goes with its folder; this repository's own tree stays clean.
        outputs = self.root / "build" / ".output" if self.root == REPOSITORY else self.root
        outputs.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix="output-", dir=outputs))

    def _start(self, *arguments: str, **changes: str) -> Running:
        folder = self._output()
        with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
            child = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=self.root,
                env={**self.environment, "PYTHONUNBUFFERED": "1", **changes},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        return Running(child=child, folder=folder)

    def result(self, cell_id: str, name: str) -> Any:
        """The value in build/<cell>/<name>.json."""
        path = self.root / "build" / cell_id / f"{name}.json"
        return json.loads(path.read_text(encoding="utf-8"))["value"]

    def checks(self, cell_id: str, target: str) -> dict[tuple[str, str], tuple[str, str]]:
        """(session, check) -> (outcome, reason) of a verification."""
        checks = self.result(cell_id, f"verify-{target}")["checks"]
        return {(c["session"], c["name"]): (c["outcome"], c["reason"]) for c in checks}


def _seeded(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return a command line of invoke with the seeds of tests where it runs checks."""
    checks = words[:1] == ("verify",) or (words[:1] == ("job",) and "verify" in words)
    return (words[0], *run_options(), *words[1:]) if checks else words


def unique_image() -> str:
    """A name for an image that no other test, run or project has."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    UNIQUE_IMAGES.append(name)
    return name


def write_project(
    root: Path,
    *,
    rows: list[dict[str, object]],
    images: Mapping[str, Mapping[str, object]],
    indexes: Mapping[str, str],
    templates: Mapping[str, str] | None = None,
    bases: Iterable[str] = (BASE,),
) -> Path:
    """A project on this repository's own bases and shared fragments. `templates` are added to those
    of images/: name -> text of its Dockerfile.j2.
    """
    own = yaml.safe_load((REPOSITORY / "matrix.yaml").read_text(encoding="utf-8"))
    matrix = {
        "schema": 1,
        "project": own["project"],
        "bases": {name: own["bases"][name] for name in bases},
        "images": {name: dict(image) for name, image in images.items()},
        "indexes": dict(indexes),
        "defaults": {"python": "3.11", "base": BASE, "images": list(images)},
        "rows": rows,
    }
    copy_project(root)
    shutil.rmtree(root / "images" / "locks")
    (root / "matrix.yaml").write_text(yaml.safe_dump(matrix, sort_keys=False), encoding="utf-8")
    for name, text in (templates or {}).items():
        (root / "images" / name).mkdir()
        (root / "images" / name / "Dockerfile.j2").write_text(text, encoding="utf-8")
    return root


def copy_project(root: Path) -> Path:
    """What this repository says of its own images, without what was built of it."""
    root.mkdir(parents=True, exist_ok=True)
    shutil.copytree(REPOSITORY / "images", root / "images")
    for name in ("matrix.yaml", "noxfile.py", "tasks.py"):
        shutil.copy(REPOSITORY / name, root / name)
    return root


def project_on_torch(root: Path, images: Mapping[str, Mapping[str, object]]) -> Path:
    """Write a project of this repository's own CPU image of torch, by the lock that is here, and of
    `images`, which may stand on it: an engine that has the image builds and locks it not again.
    """
    copy_project(root)
    matrix = yaml.safe_load((root / "matrix.yaml").read_text(encoding="utf-8"))
    matrix["images"] = {"torch": matrix["images"]["torch"], **images}
    matrix["rows"] = [{**matrix["rows"][0], "images": list(matrix["images"])}]
    (root / "matrix.yaml").write_text(yaml.safe_dump(matrix, sort_keys=False), encoding="utf-8")
    for lock in (root / "images" / "locks").iterdir():
        if lock.name != f"pylock.{CPU_CELL}.toml":
            lock.unlink()
    return root


def small_torch(folder: Path, *, padding_bytes: int = 0) -> Path:
    """A stand-in for torch's CPU build: one small pure wheel, for tests of building alone."""
    version = f"{TORCH}+cpu"
    files: dict[str, str | bytes] = {"torch/__init__.py": f'__version__ = "{version}"\n'}
    if padding_bytes:
        files["torch/padding.bin"] = os.urandom(padding_bytes)
    stand_in_wheel(folder, "torch", version, files=files)
    return folder


def small_project(
    root: Path,
    index_url: str,
    *,
    names: tuple[str, ...] = (),
    templates: Mapping[str, str] | None = None,
    image: Mapping[str, object] | None = None,
) -> Path:
    """CPU cells of a stand-in torch and nothing else, one for each of `names`, whose templates are
    `templates`, or `torch`.
    """
    images = {
        name: {"template": name if name in (templates or {}) else "torch", "title": "A test"}
        | dict(image or {})
        for name in names or (unique_image(),)
    }
    return write_project(
        root,
        rows=[{"vendor": "cpu", "targets": "x86_64", "torch": TORCH}],
        images=images,
        indexes={"cpu": index_url},
        templates=templates,
    )


def cell_id(image: str) -> str:
    """The id of a small project's cell."""
    return f"cpu-x86_64-py311-torch{TORCH.replace('.', '')}-{image}"


def reference(image: str) -> str:
    return f"localhost/warpfront/{image}:{TORCH}-cpu-py3.11"


def wait_until(holds: Callable[[], bool], seconds: float = 300.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it never became so"
        time.sleep(0.05)


def half_written(folder: Path) -> list[str]:
    """What an interrupted run must not leave: results that cannot be read, files put aside."""
    wrong = []
    for path in sorted(folder.rglob("*")):
        name = path.name
        if name.startswith(".") and name not in {".lock", ".bake"}:
            wrong.append(f"{path} was put aside and forgotten")
        if path.is_file() and path.suffix == ".json":
            try:
                json.loads(path.read_text(encoding="utf-8"))
            except ValueError as error:
                wrong.append(f"{path}: {error}")
    return wrong
