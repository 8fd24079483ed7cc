"""What an image's wheels are replaced by: a base, their layers and their byte code as one manifest;
or nothing, and then they are installed by RUN.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from builders import a_cell, a_lock
from standins import stand_in_wheel

from warpfront.images import composing
from warpfront.images.bake import BakeTarget, bake_file
from warpfront.images.built import RenderedImage, ResolvedBase
from warpfront.images.composing import Composer
from warpfront.images.engine.buildx import Baked, BakeRequest
from warpfront.images.preparing import Prepared
from warpfront.images.render import BYTE_CODE_CONTEXT
from warpfront.matrix.cell import BaseSource
from warpfront.system.digests import frozen
from warpfront.system.store import Store, write_json
from warpfront.wheels.layers.layer_store import LayerStore
from warpfront.wheels.lock.values import LockedWheel
from warpfront.wheels.store.wheelhouse import Wheelhouse

GOLDEN = Path(__file__).parents[2] / "golden" / "dockerfiles"
COMPILER = BYTE_CODE_CONTEXT["compile.py"]
DOCKERFILE = (GOLDEN / "cpu-x86_64-py311-torch2130-torch.Dockerfile").read_text("utf-8")


@dataclass
class Said:
    """Who watches, and what was said."""

    words: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        self.words.append(text)

    def advance(self, what: str, done_bytes: int, total_bytes: int) -> None: ...

    def step(self, cell_id: str, text: str) -> None: ...

    def line(self, cell_id: str, text: str) -> None: ...


@dataclass
class BuildKit:
    """Leaves an image layout of one more layer than it was given, or fails."""

    layers: LayerStore
    fails_at: str = ""
    built: list[str] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)

    def forget(self, _: BakeRequest, words: str) -> None:
        assert self.built[-1] == "byte code"
        self.forgotten.append(words)

    def bake(self, request: BakeRequest, _on_step: object) -> Mapping[str, Baked]:
        ((name, target),) = json.loads(request.file.read_text("utf-8"))["target"].items()
        (folder,) = request.writable
        assert target["output"] == [f"{composing._OUTPUT}{folder}"]
        kind = target.get("target") or "byte code"
        self.built.append(kind)
        lent = {one.name for one in folder.glob("blobs/sha256/*")}
        if kind == self.fails_at:
            return {name: Baked(digest="", error="no")}
        lower: dict[str, Any] = {"layers": []}
        diff_ids: list[str] = []
        if kind == "byte code":
            context = Path(target["context"])
            assert (context / "Dockerfile").read_text("utf-8").count("RUN ") == 1
            assert (context / "compile.py").read_text("utf-8") == COMPILER
            lower = self.layers.read(target["contexts"]["installed"].partition("@")[2])
            diff_ids = self.layers.read(lower["config"]["digest"])["rootfs"]["diff_ids"]
            assert lent == {self.layers.blob(one["digest"]).name for one in lower["layers"]}
            assert all(self.layers.blob(name).exists() for name in lent)
        content = f"layer {len(self.built)}".encode()
        config = {"rootfs": {"type": "layers", "diff_ids": [*diff_ids, f"sha256:d{kind}"]}}
        own = blob(folder, content)
        manifest = {
            "layers": [*lower["layers"], {"digest": own, "size": len(content)}],
            "config": described(folder, json.dumps(config).encode()),
        }
        digest = blob(folder, json.dumps(manifest).encode())
        return {name: Baked(digest=digest, error="")}


def blob(folder: Path, content: bytes) -> str:
    name = sha256(content).hexdigest()
    (folder / "blobs" / "sha256").mkdir(parents=True, exist_ok=True)
    (folder / "blobs" / "sha256" / name).write_bytes(content)
    return f"sha256:{name}"


def described(folder: Path, content: bytes) -> dict[str, object]:
    return {"digest": blob(folder, content), "size": len(content)}


@pytest.fixture
def house(tmp_path: Path) -> Wheelhouse:
    return Wheelhouse(tmp_path / "house")


@pytest.fixture
def layers(tmp_path: Path, house: Wheelhouse) -> LayerStore:
    return LayerStore(tmp_path / "layers", house)


@pytest.fixture
def buildkit(layers: LayerStore, monkeypatch: pytest.MonkeyPatch) -> BuildKit:
    made = BuildKit(layers)
    monkeypatch.setattr(composing, "bake", made.bake)
    monkeypatch.setattr(composing, "forget_steps", made.forget)
    return made


def a_wheel(house: Wheelhouse, name: str, source: str = "import os\n") -> LockedWheel:
    path = stand_in_wheel(house.root.parent, name, "1", files={"shared.py": source})
    _, sha = house.keep(path)
    size = path.stat().st_size
    return LockedWheel(
        name=name, version="1", filename=path.name, sha256=sha, size_bytes=size, index=""
    )


def an_item(*wheels: LockedWheel, dockerfile: str = DOCKERFILE) -> Prepared:
    cell = a_cell()
    base = ResolvedBase(name="b", source=BaseSource.REGISTRY, reference="b", identity="sha256:0")
    return Prepared(
        cell=cell,
        lock=a_lock(cell),
        rendered=RenderedImage(
            cell_id=cell.id, files=frozen({"Dockerfile": dockerfile}), wheels=wheels
        ),
        base=base,
        content_hash="0",
        record={},
        image=None,
    )


@pytest.fixture
def said() -> Said:
    return Said()


@pytest.fixture
def adopted() -> list[tuple[Path, ...]]:
    """What the engine was given, each time that something is about to stand on it."""
    return []


@pytest.fixture
def compose(
    tmp_path: Path, layers: LayerStore, said: Said, adopted: list[tuple[Path, ...]]
) -> Callable[[Prepared], str]:
    def request(_name: str, targets: Sequence[BakeTarget], folder: Path) -> BakeRequest:
        (target,) = targets
        file = tmp_path / "build" / ".bake" / "layers.json"
        write_json(file, bake_file([target]))
        return BakeRequest(
            buildx=(), environment={}, file=file, targets=(target.name,), readable=(), logs={},
            writable=(folder,),
        )  # fmt: skip

    building = SimpleNamespace(
        store=Store(tmp_path / "build"),
        watch=said,
        engine=SimpleNamespace(adopt=lambda blobs: adopted.append(tuple(blobs))),
        environment_contexts=lambda _: {},
        secrets=lambda _: (),
        request=request,
        on_step=lambda _: None,
    )
    composer = Composer(building=building, layers=layers)  # type: ignore[arg-type]

    def composed(item: Prepared) -> str:
        found = composer.composed([item]).get(item.cell.id, {})
        assert set(found) <= {"installed"}
        return found.get("installed", "")

    return composed


def test_an_image_stands_on_its_base_its_wheels_and_their_byte_code(
    compose: Callable[[Prepared], str],
    buildkit: BuildKit,
    layers: LayerStore,
    house: Wheelhouse,
    tmp_path: Path,
) -> None:
    context = compose(an_item(a_wheel(house, "torch"), a_wheel(house, "numpy")))
    folder, _, digest = context.partition("@")
    assert folder == f"oci-layout://{tmp_path / 'layers'}"
    manifest = layers.read(digest)
    config = layers.read(manifest["config"]["digest"])
    assert buildkit.built == ["environment", "byte code"]
    (words,) = buildkit.forgotten
    assert words in BYTE_CODE_CONTEXT["Dockerfile"]
    assert len(manifest["layers"]) == len(config["rootfs"]["diff_ids"]) == 3
    assert config["rootfs"]["diff_ids"][::2] == ["sha256:denvironment", "sha256:dbyte code"]
    for one in [manifest["config"], *manifest["layers"]]:
        content = layers.blob(one["digest"]).read_bytes()
        assert len(content) == one["size"]
        assert f"sha256:{sha256(content).hexdigest()}" == one["digest"]
    told = [one["created_by"].partition(" numpy==1")[0] for one in config["history"]]
    assert told == ["warpfront layer:", "warpfront layer: byte code of"]


def test_the_engine_is_given_what_is_built_on_and_nothing_that_is_damaged(
    compose: Callable[[Prepared], str],
    buildkit: BuildKit,
    layers: LayerStore,
    house: Wheelhouse,
    adopted: list[tuple[Path, ...]],
) -> None:
    item = an_item(a_wheel(house, "torch"))
    manifest = layers.read(compose(item).partition("@")[2])
    base, *_, byte_code = [layers.blob(one["digest"]) for one in manifest["layers"]]
    assert [len(blobs) for blobs in adopted] == [2, 3]
    assert adopted[0] == adopted[1][:2]
    assert buildkit.built == ["environment", "byte code"]
    found = byte_code.stat()
    byte_code.write_bytes(bytes(found.st_size))
    os.utime(byte_code, ns=(found.st_atime_ns, found.st_mtime_ns))
    another = LayerStore(layers.root, house)
    assert base in another.proven(given(layers, manifest))
    assert byte_code not in another.proven(given(layers, manifest))


def given(layers: LayerStore, manifest: dict[str, object]) -> str:
    return layers.write(manifest)[0]


def test_what_was_made_before_is_not_made_again(
    compose: Callable[[Prepared], str], buildkit: BuildKit, layers: LayerStore, house: Wheelhouse
) -> None:
    item = an_item(a_wheel(house, "torch"))
    first = compose(item)
    assert compose(item) == first
    assert len(buildkit.built) == 2
    base = layers.read(first.partition("@")[2])["layers"][0]
    layers.blob(base["digest"]).unlink()
    compose(item)
    assert buildkit.built[2:3] == ["environment"], "what is lost is built again"


@pytest.mark.parametrize("kind", ["environment", "byte code"])
def test_what_cannot_be_composed_is_built_by_run_and_that_is_said(
    kind: str,
    compose: Callable[[Prepared], str],
    buildkit: BuildKit,
    house: Wheelhouse,
    said: Said,
) -> None:
    buildkit.fails_at = kind
    assert compose(an_item(a_wheel(house, "torch"))) == ""
    assert said.words == [f"{a_cell().id}: its wheels are installed by RUN: no"]


def test_wheels_that_write_one_file_differently_are_installed_by_run(
    compose: Callable[[Prepared], str], buildkit: BuildKit, house: Wheelhouse, said: Said
) -> None:
    item = an_item(a_wheel(house, "torch"), a_wheel(house, "numpy", "import sys\n"))
    assert compose(item) == ""
    assert "shared.py" in said.words[0]
    assert buildkit.built == []


def test_a_dockerfile_of_somebodys_own_is_run_as_it_is(
    compose: Callable[[Prepared], str], buildkit: BuildKit, house: Wheelhouse, said: Said
) -> None:
    assert compose(an_item(a_wheel(house, "torch"), dockerfile="FROM x\nRUN y\n")) == ""
    assert compose(an_item()) == ""
    assert (buildkit.built, said.words) == ([], [])
