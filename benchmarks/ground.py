"""The ground that bench-cold and bench-layers build on: one cell in a project of its own, and the
same image by hand beside it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml
from benchmark import child_environment

from warpfront.images.engine.bases import resolve_base
from warpfront.images.engine.protocol import Engine, connect
from warpfront.images.labels import CELL
from warpfront.matrix.cell import Cell
from warpfront.pipeline.workspace import Workspace, open_workspace
from warpfront.system.process import Command, environment, run
from warpfront.system.store import place_program
from warpfront.wheels.lock.pylock import dump_lock, read_lock
from warpfront.wheels.lock.values import WheelLock
from warpfront.wheels.sources import site_when_needed
from warpfront.wheels.uv_program import uv_binary

ROOT = Path(__file__).resolve().parent.parent
IMAGE = "bench-cold"
LABEL = "dev.warpfront.bench"
BY_HAND = f"localhost/warpfront/{IMAGE}:by-hand"
_COMPANIONS = ("torchvision", "torchaudio")


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseContext:
    """One cell in a project of its own, and the same image by hand beside it."""

    root: Path
    cell: Cell
    base_reference: str
    wheels: Path
    tools: Path
    engine: Engine
    environment: Mapping[str, str]

    def forget(self) -> None:
        """Remove the images and every bit of the build cache."""
        for reference in (self.cell.local_reference, BY_HAND):
            self.engine.remove(reference)
        self._call(*self.engine.buildx, "prune", "--all", "--force")

    def invoke_build(self, *options: str) -> None:
        self._call(str(Path(sys.executable).with_name("invoke")), "build", *options)

    def build_by_hand(self, output: str = "", dockerfile: str = "Dockerfile") -> None:
        self._call(
            *self.engine.buildx,
            "build",
            "--quiet",
            f"--tag={BY_HAND}",
            f"--label={LABEL}=cold",
            f"--build-context=base=docker-image://{self.base_reference}",
            f"--build-context=wheels={self.wheels}",
            f"--build-context=tools={self.tools}",
            *([f"--output={output},name={BY_HAND}"] if output else []),
            f"--file={self.root / 'by-hand' / dockerfile}",
            str(self.root / "by-hand"),
        )

    def layers_bytes(self, reference: str) -> int:
        image = self.engine.image(reference)
        if image is None:
            raise RuntimeError(f"{reference} was not built")
        return image.size_bytes

    def stored_bytes(self) -> int:
        """What the engine counts for the image by hand: packed blobs and unpacked layers."""
        return sum(image.size_bytes for image in self.engine.images(f"{LABEL}=cold"))

    def packed_bytes(self, reference: str) -> int:
        """The packed blobs of an image: what a push would send of it."""
        label = f"{LABEL}=cold" if reference == BY_HAND else CELL
        listed = [one for one in self.engine.images(label) if reference in one.references]
        return sum(one.size_bytes for one in listed) - self.layers_bytes(reference)

    def _call(self, *argv: str) -> None:
        run(Command(argv=argv, cwd=self.root, environment=self.environment)).check()


def matrix_of_one(text: str, cell: Cell) -> str:
    """The matrix.yaml in `text` with nothing but `cell` left, under the benchmark's image name."""
    document = yaml.safe_load(text)
    row = {
        "vendor": cell.vendor,
        "targets": list(cell.targets),
        "torch": cell.torch,
        "python": cell.python,
        "base": cell.base.name,
        "images": [IMAGE],
        "companions": [pin.name for pin in cell.stack if pin.name in _COMPANIONS],
    }
    if cell.toolkit is not None:
        row["toolkit"] = cell.toolkit.version
    if cell.index is not None:
        row["index"] = cell.index.name
    document["images"] = {IMAGE: document["images"][cell.image]}
    document["rows"], document["defaults"] = [row], {}
    document.pop("release", None)  # its aliases may be for other cells
    return str(yaml.safe_dump(document, sort_keys=False))


@contextlib.contextmanager
def made_ground(cell: Cell, folder: Path) -> Iterator[CaseContext]:
    """A project with `cell` alone in `folder`, its wheels in the wheelhouse and in one folder."""
    engine, root = connect(environment()), folder / "project"
    shutil.copytree(ROOT / "images", root / "images", ignore=shutil.ignore_patterns("locks"))
    shutil.copy(ROOT / "tasks.py", root)
    text = (ROOT / "matrix.yaml").read_text(encoding="utf-8")
    (root / "matrix.yaml").write_text(matrix_of_one(text, cell), encoding="utf-8")
    (own,) = open_workspace(root).matrix.cells
    lock = copied_lock(cell, own, root)
    source = open_workspace(ROOT)
    house = source.folders.wheelhouse
    house.fetch(lock.wheels, site_when_needed()(), on_progress=lambda *_: None)
    cache = folder / "cache" / "warpfront"
    cache.mkdir(parents=True)
    (cache / "wheelhouse").symlink_to(house.root)
    (root / "by-hand").mkdir()
    dockerfile = dockerfile_by_hand(lock, cell.base.interpreter)
    (root / "by-hand" / "Dockerfile").write_text(dockerfile, encoding="utf-8")
    ground = CaseContext(
        root=root,
        cell=own,
        base_reference=_base_reference(source, cell, engine),
        wheels=house.view(lock.wheels, folder / "wheels"),
        tools=place_program(uv_binary(), folder / "tools"),
        engine=engine,
        environment=child_environment(engine, folder / "cache"),
    )
    try:
        yield ground
    finally:
        for reference in (own.local_reference, BY_HAND):
            engine.remove(reference)


def copied_lock(cell: Cell, own: Cell, root: Path) -> WheelLock:
    path = ROOT / "images" / "locks" / f"pylock.{cell.id}.toml"
    lock = read_lock(path.read_text(encoding="utf-8"), path=path.name)
    target = root / "images" / "locks" / f"pylock.{own.id}.toml"
    target.parent.mkdir()
    target.write_text(dump_lock(dataclasses.replace(lock, cell_id=own.id)), encoding="utf-8")
    return lock


def _base_reference(workspace: Workspace, cell: Cell, engine: Engine) -> str:
    """The base as `invoke build` takes it."""
    return resolve_base(
        cell.base,
        engine,
        cache=workspace.folders.cache,
        on_line=lambda _: None,
    ).reference


def dockerfile_by_hand(lock: WheelLock, interpreter: str) -> str:
    """What one would write: exact versions, one RUN, nothing left behind."""
    pins = " ".join(f"{wheel.name}=={wheel.version}" for wheel in lock.wheels)
    return (
        "FROM base\n"
        "RUN --mount=type=bind,from=wheels,target=/wheels "
        "--mount=type=bind,from=tools,target=/tools \\\n"
        f"    /tools/uv venv --python {interpreter} /opt/venv && \\\n"
        "    /tools/uv pip install --no-cache --compile-bytecode --offline --no-index \\\n"
        f"      --find-links /wheels --python /opt/venv/bin/python {pins}\n"
        'ENV PATH="/opt/venv/bin:$PATH"\n'
    )
