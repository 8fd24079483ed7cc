"""A ROCm cell goes the whole path, from an index on loopback that serves stand-ins with the real
names and metadata shape. There is no AMD device here, and none is pretended.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import docker
import pytest
from docker.types import Mount
from projects import REPOSITORY, Project, unique_image, write_project
from stand_in_torch import torch_files
from standins import (
    ROCM_ARCHS,
    Index,
    rocm10_stand_ins,
    rocm64_stand_ins,
    rocm72_stand_ins,
    rocm714_stand_ins,
    serve_index,
    stand_in_variants,
)

from warpfront import pipeline
from warpfront.errors import UnavailableError
from warpfront.images.built import BuiltImage, RenderedImage
from warpfront.images.engine.protocol import Engine
from warpfront.images.labels import CONTENT_HASH
from warpfront.matrix.cell import Selection
from warpfront.pipeline.workspace import open_workspace
from warpfront.report.rows import ReportRow
from warpfront.verify.results import Outcome, Verification
from warpfront.verify.verdict import failure_of, outcome_of
from warpfront.wheels.lock.pylock import read_lock
from warpfront.wheels.lock.values import WheelLock
from warpfront_checks.check_options import SESSIONS

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]

EVERYTHING = Selection()
LOAD_CHECKS = (
    "torch imports",
    "python version",
    "machine type",
    "torch build",
    "versions",
    "installed once",
    "one toolkit",
    "arch list",
    "dependencies",
    "torchvision works",
)


class Silent:
    """Somebody to tell, who remembers what was said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def advance(self, what: str, done_bytes: int, total_bytes: int) -> None:
        """Transfers are of no interest here."""

    def step(self, cell_id: str, text: str) -> None:
        """Nor are steps."""

    def line(self, cell_id: str, text: str) -> None:
        """Nor is what they print."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One of the ways in which ROCm's wheels hang together."""

    torch: str
    toolkit: str
    make: Callable[[Path], Path]
    versions: dict[str, str]
    triton: str
    prefix: str = ""
    from_pypi: tuple[str, ...] = ()

    @property
    def index(self) -> str:
        return f"{self.prefix}rocm{self.toolkit}"

    def cell_id(self, image: str) -> str:
        toolkit = f"rocm{self.toolkit}".replace(".", "")
        return f"amd-{toolkit}-gfx942-py311-torch{self.torch.replace('.', '')}-{image}"


BEFORE_714 = Shape(
    torch="2.8.0",
    toolkit="6.4",
    make=rocm64_stand_ins,
    versions={
        "torch": "2.8.0+rocm6.4",
        "torchvision": "0.23.0+rocm6.4",
        "pytorch-triton-rocm": "3.4.0",
    },
    triton="pytorch-triton-rocm",
)
FROM_714 = Shape(
    torch="2.14.1",
    toolkit="7.14",
    make=rocm714_stand_ins,
    versions={
        "torch": "2.14.1+rocm7.14",
        "torchvision": "0.29.1+rocm7.14",
        "triton-rocm": "3.8.0",
        "rocm": "7.14.0.post1",
        "rocm-sdk-core": "7.14.0",
        "rocm-sdk-libraries": "7.14.0",
        "rocm-sdk-device-gfx942": "7.14.0",
    },
    triton="triton-rocm",
)


FROM_10 = Shape(
    torch="2.13.0",
    toolkit="10.0",
    prefix="amd-",
    make=functools.partial(rocm10_stand_ins, python="3.11", devices=("gfx942", "gfx1201")),
    versions={
        "torch": "2.13.0+rocm10.0.0",
        "torchvision": "0.28.0+rocm10.0.0",
        "triton": "3.7.1+rocm10.0.0",
        "rocm": "10.0.0",
        "rocm-sdk-core": "10.0.0",
        "rocm-sdk-libraries": "10.0.0",
        "rocm-sdk-device-gfx942": "10.0.0",
        "amd-torch-device-gfx942": "2.13.0+rocm10.0.0",
        "amd-torchvision-device-gfx942": "0.28.0+rocm10.0.0",
    },
    triton="triton",
    from_pypi=("rocm-bootstrap",),
)


SHAPES = ("2.8.0+rocm6.4", "2.14.1+rocm7.14", "2.13.0+rocm10.0.0")


@pytest.fixture(params=[BEFORE_714, FROM_714, FROM_10], ids=SHAPES)
def shape(request: pytest.FixtureRequest) -> Shape:
    found: Shape = request.param
    return found


@pytest.fixture
def rocm(shape: Shape, tmp_path: Path) -> Iterator[Index]:
    with serve_index(shape.make(tmp_path / "wheels"), name=shape.index) as served:
        yield served


@pytest.fixture
def image() -> str:
    return unique_image()


@pytest.fixture
def root(shape: Shape, rocm: Index, image: str, tmp_path: Path) -> Path:
    row: dict[str, object] = {
        "vendor": "amd",
        "toolkit": shape.toolkit,
        "targets": ["gfx942"],
        "torch": shape.torch,
        "companions": ["torchvision"],
    }
    return write_project(
        tmp_path / "project",
        rows=[row],
        images={image: {"template": "torch", "title": "ROCm", "packages": ["pip"]}},
        indexes={shape.index: rocm.url},
    )


@pytest.mark.usefixtures("toolbox")
def test_a_rocm_cell_is_locked_rendered_built_loaded_and_reported(
    shape: Shape, root: Path, rocm: Index, image: str, engine: Engine
) -> None:
    watch, cell_id = Silent(), shape.cell_id(image)
    workspace = open_workspace(root, build=root / "build")

    locks = pipeline.lock(workspace, EVERYTHING, watch)
    lock = locks[cell_id]
    assert isinstance(lock, WheelLock), lock
    locked = {wheel.name: wheel for wheel in lock.wheels}
    assert {name: locked[name].version for name in shape.versions} == shape.versions
    assert set(locked) == {*shape.versions, *shape.from_pypi, "pip"}
    own = set(shape.versions)
    assert {wheel.index for wheel in lock.wheels if wheel.name in own} == {rocm.url}
    text = workspace.folders.lock_path(cell_id).read_text(encoding="utf-8")
    assert read_lock(text, path=workspace.folders.lock_path(cell_id).name) == lock

    rendered = pipeline.render(workspace, EVERYTHING, watch, locks=locks)[cell_id]
    assert isinstance(rendered, RenderedImage), rendered
    assert f"torch=={shape.versions['torch']}" in rendered.files["requirements.txt"]
    assert not re.search(r"device-gfx1201", rendered.files["requirements.txt"])

    built = pipeline.build(workspace, EVERYTHING, watch, locks=locks)[cell_id]
    assert isinstance(built, BuiltImage), built
    assert not built.reused
    stored = engine.image(built.reference)
    assert stored is not None
    assert stored.labels[CONTENT_HASH] == built.content_hash

    (verification,) = pipeline.verify(workspace, EVERYTHING, watch)
    assert isinstance(verification, Verification), verification
    outcomes = {(c.session, c.name): (c.outcome, c.reason) for c in verification.checks}
    for name in (*LOAD_CHECKS, f"{shape.triton} works"):
        assert outcomes["load", name][0] is Outcome.PASSED, outcomes["load", name]
    assert outcomes["load", "device code"][0] is Outcome.PASSED, outcomes["load", "device code"]
    if shape is FROM_10:  # torch, vision and the SDK's
        assert outcomes["load", "device code"][1] == "8 code objects for gfx942 in 3 archives"
    for session in SESSIONS[1:]:
        outcome, reason = outcomes[session, "device"]
        assert outcome is Outcome.UNAVAILABLE
        assert reason.startswith("no gfx942 device")
    assert outcome_of(verification) is Outcome.UNAVAILABLE
    failure = failure_of([verification])
    assert isinstance(failure, UnavailableError)
    assert failure.exit_code == 11

    (row,) = pipeline.report(workspace, EVERYTHING)
    assert isinstance(row, ReportRow)
    assert (row.cell_id, row.target) == (cell_id, "gfx942")


@pytest.mark.usefixtures("toolbox")
@pytest.mark.parametrize(
    "shape", [pytest.param(BEFORE_714, marks=pytest.mark.exhaustive), FROM_714], ids=SHAPES[:2]
)
def test_the_commands_say_the_same_with_their_exit_codes(
    shape: Shape, root: Path, image: str, here: dict[str, str], client: docker.DockerClient
) -> None:
    project, cell_id = Project(root=root, environment=here), shape.cell_id(image)
    project.invoke("lock").expect(0)
    built = project.invoke("build", "--target", "gfx942", "--json").expect(0).json
    assert built[cell_id]["reused"] is False
    verified = project.invoke("verify", "--target", "gfx942").expect(11)
    assert f"no such device here for {cell_id} on gfx942" in verified.said
    (row,) = project.invoke("report", "--json").expect(0).json
    assert row["cell_id"] == cell_id
    assert "unavailable" in row.values()
    again = project.invoke("build", "--locked", "--json").expect(0).json
    assert again[cell_id]["reused"] is True
    filters = {"ancestor": again[cell_id]["image_id"]}
    assert client.api.containers(all=True, filters=filters) == []


@pytest.mark.exhaustive  # bootstraps Debian unstable with hipcc: 1.1 GB
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("toolbox")
def test_devel_of_rocm_72_compiles_for_each_target_of_its_row(
    image: str, here: dict[str, str], tmp_path: Path
) -> None:
    """A real compiler of ROCm 7.2 beside a stand-in of its torch."""
    targets = ("gfx90a", "gfx942", "gfx950", "gfx1100")
    row: dict[str, object] = {"vendor": "amd", "toolkit": "7.2", "torch": "2.12.1"}
    row |= {"targets": [*targets], "python": "3.14", "base": "debian-sid-rocm72"}
    with serve_index(rocm72_stand_ins(tmp_path / "wheels"), name="rocm7.2") as index:
        root = write_project(
            tmp_path / "project",
            rows=[row],
            images={
                image: {"template": "torch", "title": "ROCm", "packages": ["pip"]},
                f"{image}-devel": {
                    "parent": image, "template": "devel", "title": "Compiler", "compiler": True
                },
            },
            indexes={"rocm7.2": index.url},
            bases=("debian-12", "debian-sid-rocm72"),
        )  # fmt: skip
        project = Project(root=root, environment=here)
        project.invoke("lock").expect(0)
        project.invoke("build", timeout=800.0).expect(0)
    repo = str(REPOSITORY / "tests" / "compile" / "hip")
    for target in targets:
        found = project.invoke("compile", "--repo", repo, "--target", target, "--json").expect(0)
        checks = found.json["verification"]["checks"]
        assert {check["outcome"] for check in checks} == {"passed"}
        assert f"{image}-devel" in found.json["verification"]["cell_id"]


VARIANTS = {
    "$schema": "https://variants-schema.wheelnext.dev/peps/825/v0.1.1.json",
    "default-priorities": {"namespace": ["nvidia", "amd"]},
    "variants": {
        "null": {},
        "cuda12.8": {"nvidia": {"cuda_version_lower_bound": ["12.0"], "sm_arch": ["90_real"]}},
        # As long as the next in all of its files: an import sees it by what it says alone.
        "rocm6.3": {"amd": {"gfx_arch": ["gfx90a", "gfx942"], "rocm_version": ["6.3"]}},
        "rocm6.4": {"amd": {"gfx_arch": ["gfx90a", "gfx942"], "rocm_version": ["6.4"]}},
    },
}
# What pip is given in the image: the file of another variant, under the name that pip reads.
SWAPPED = """
python3 -c 'import torch.label; print(torch.__version__)'; /opt/warpfront/bin/warpfront-guard verify
cp /wheels/torch-2.8.0-*-rocm6.3.whl /tmp/torch-2.8.0-cp311-cp311-manylinux_2_28_x86_64.whl
pip install --no-index --no-deps --force-reinstall /tmp/torch-*.whl; echo pip $?
python3 -c 'import torch'; echo import $?
/opt/warpfront/bin/warpfront-guard verify; echo verify $?
"""


@pytest.mark.exhaustive
@pytest.mark.usefixtures("toolbox")
def test_a_variant_of_torch_is_locked_built_and_guarded_against_another(
    image: str, client: docker.DockerClient, tmp_path: Path
) -> None:
    wheels = rocm64_stand_ins(tmp_path / "wheels")
    for labelled in wheels.glob("torch-*"):
        labelled.unlink()
    files = torch_files("2.8.0", hip="6.4.43482", archs=ROCM_ARCHS, python="3.11")
    requires = ["pytorch-triton-rocm==3.4.0"]
    stand_in_variants(wheels, "torch", "2.8.0", VARIANTS, requires=requires, files=files)
    row: dict[str, object] = {"vendor": "amd", "toolkit": "6.4", "targets": ["gfx942"]}
    with serve_index(wheels, name="rocm6.4") as index:
        root = write_project(
            tmp_path / "project",
            rows=[{**row, "torch": "2.8.0"}],
            images={image: {"template": "torch", "title": "ROCm", "packages": ["pip"]}},
            indexes={"rocm6.4": index.url},
        )
        with (root / "matrix.yaml").open("a", encoding="utf-8") as file:
            file.write("allow_variants: [torch]\n")
        watch, workspace = Silent(), open_workspace(root, build=root / "build")
        locks = pipeline.lock(workspace, EVERYTHING, watch)
        (lock,) = locks.values()
        assert isinstance(lock, WheelLock), lock
        torch = next(wheel for wheel in lock.wheels if wheel.name == "torch")
        assert (torch.version, torch.variant.label) == ("2.8.0", "rocm6.4")
        (built,) = pipeline.build(workspace, EVERYTHING, watch, locks=locks).values()
    assert isinstance(built, BuiltImage), built
    said: bytes = client.containers.run(
        built.reference,
        ["bash", "-c", SWAPPED],
        mounts=[Mount("/wheels", str(wheels), type="bind", read_only=True)],
        network_mode="none",
        stderr=True,
        remove=True,
    )
    sound, _, after = said.decode().partition("pip 0")
    assert "torch 2.8.0: as it was sealed" in sound
    assert "import 1" in after
    assert "torch-2.8.0.dist-info/variant.json: of another variant" in after
    assert "verify 1" in after
