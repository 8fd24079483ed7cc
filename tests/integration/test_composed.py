"""An image put together of layers holds the files of one whose wheels were installed by RUN, and
bears what people do to it. With real torch by `--exhaustive`: layers are only made where asked for.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest
from image_trees import differences, read_allowed, tree_of, unexplained
from projects import (
    CPU_CELL,
    Project,
    cell_id,
    project_on_torch,
    small_torch,
    unique_image,
    write_project,
)
from standins import serve_index, stand_in_wheel

from warpfront.images.engine import embedded
from warpfront.images.engine.protocol import Engine
from warpfront.images.render import COMPILER, slim_files
from warpfront.matrix.reading import removed
from warpfront.system.process import Command, run

pytestmark = [pytest.mark.docker, pytest.mark.process, pytest.mark.network]
ALLOWED = Path(__file__).parents[1] / "composed_differences.toml"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, here: dict[str, str]) -> Iterator[Project]:
    root = tmp_path_factory.mktemp("composed") / "project"
    packages = ["numpy", "pip", "uv"]
    write_project(
        root,
        rows=[{"vendor": "cpu", "targets": "x86_64", "torch": "2.13.0"}],
        images={unique_image(): {"template": "torch", "title": "PyTorch", "packages": packages}},
        indexes={},
    )
    yield Project(root=root, environment=here)
    shutil.rmtree(root.parent)


@pytest.fixture(scope="module")
def composed(project: Project, engine: Engine) -> Iterator[str]:
    """An image that stands on layers, under a name that no build looks for."""
    if not engine.features().containerd_store:
        pytest.skip("this engine keeps no layers as they are: its images are built by RUN")
    yield from kept(project, engine, "composed", "--layers")


@pytest.fixture(scope="module")
def by_run(project: Project, engine: Engine) -> Iterator[str]:
    yield from kept(project, engine, "by-run")


def kept(project: Project, engine: Engine, name: str, *options: str) -> Iterator[str]:
    answers: dict[str, Any] = (
        project.invoke("build", "--json", *options, timeout=1800).expect(0).json
    )
    (built,) = answers.values()
    image = f"localhost/warpfront/test-{name}:1"
    engine.tag(built["image_id"], image)
    engine.remove(built["reference"])  # or the next build would find it
    yield image
    engine.remove(image)


def cached_steps(engine: Engine, words: str) -> set[str]:
    """What BuildKit keeps of steps with these words, by its names."""
    asked = (*engine.buildx, "du", "--filter", f'description~="{words}"')
    said = run(Command(argv=asked, environment=engine.build_environment)).stdout
    rows = [line.split() for line in said.splitlines()]
    return {row[0].rstrip("*") for row in rows if row[1:2] in (["true"], ["false"])}


def layers_told(client: docker.DockerClient, image: str) -> list[str]:
    history = client.images.get(image).history()
    return [one["CreatedBy"] for one in history if "warpfront layer" in one["CreatedBy"]]


@pytest.mark.exhaustive
def test_both_ways_give_the_same_files_but_for_what_is_written_down(
    engine: Engine, client: docker.DockerClient, composed: str, by_run: str
) -> None:
    assert layers_told(client, composed), "it was put together of layers"
    assert not layers_told(client, by_run)
    found = differences(tree_of(engine, composed), tree_of(engine, by_run))
    left, unused = unexplained(found, read_allowed(ALLOWED))
    assert not left
    assert not unused, "allowed, and did not occur"


def in_image(
    client: docker.DockerClient, image: str, script: str, wheels: Path | None = None
) -> list[str]:
    """In a container that may be written to, as people use one; `wheels` are at /wheels there."""
    volumes = {str(wheels): {"bind": "/wheels", "mode": "ro"}} if wheels else {}
    command = ["sh", "-ec", script]
    said: bytes = client.containers.run(
        image, command, remove=True, network_mode="none", stderr=True, volumes=volumes
    )
    return said.decode().splitlines()


@pytest.mark.exhaustive
def test_what_lies_in_lower_layers_can_be_taken_out_by_pip_and_by_uv(
    client: docker.DockerClient, composed: str
) -> None:
    script = (
        "pip uninstall --yes --quiet numpy --root-user-action ignore; uv pip uninstall pip;"
        "cd /opt/venv/lib/python3/site-packages; ls -d numpy* pip* || echo gone;"
        "warpfront-guard verify; python3 -c 'import torch; print(torch.ones(2).sum().item())'"
    )
    said = in_image(client, composed, script)
    assert "gone" in said
    assert any("as it was sealed" in line for line in said)
    assert said[-1] == "2.0"


@pytest.mark.exhaustive
def test_what_lies_in_lower_layers_can_be_upgraded_by_pip_and_by_uv(
    client: docker.DockerClient, composed: str, tmp_path: Path
) -> None:
    for version in ("98.0", "99.0"):
        files = {"networkx/__init__.py": f"__version__ = {version!r}\n"}
        stand_in_wheel(tmp_path, "networkx", version, files=files)
    stand_in_wheel(tmp_path, "newcomer", "1.0", files={"newcomer.py": ""})
    options = "--no-index --find-links /wheels"
    says = "python3 -c 'import networkx; print(networkx.__version__)'"
    script = (
        f"pip install --quiet --root-user-action ignore {options} networkx==98.0 newcomer; {says};"
        f"uv pip install --quiet {options} networkx==99.0; {says}; pip uninstall -qy newcomer;"
        "cd /opt/venv/lib/python3/site-packages; ls -d networkx/*.py networkx-* newcomer* || true;"
        "warpfront-guard verify; python3 -c 'import torch; print(torch.ones(2).sum().item())'"
    )
    said = in_image(client, composed, script, tmp_path)
    assert said[:2] == ["98.0", "99.0"]
    left = [line for line in said if line.startswith(("networkx", "newcomer"))]
    assert left == ["networkx-99.0.dist-info", "networkx/__init__.py"]
    assert any("as it was sealed" in line for line in said)
    assert said[-1] == "2.0"


@pytest.mark.exhaustive
def test_no_byte_code_is_compiled_again(client: docker.DockerClient, composed: str) -> None:
    """None is compiled again: the source's age in it is the source's."""
    script = (
        "site=/opt/venv/lib/python3.11/site-packages;"
        "python3 -m compileall -qq $site/torch $site/sympy || true;"
        "find $site -name '*.pyc' -newermt @315532801 | wc -l"
    )
    assert in_image(client, composed, script)[-1] == "0"


def test_a_project_that_was_never_built_stands_on_layers(
    alone: dict[str, str], engine: Engine, client: docker.DockerClient, tmp_path: Path
) -> None:
    """From an empty cache, of stand-in wheels. Made either way it holds the same files, without
    what is left out, and is reused by the other.
    """
    if not engine.features().containerd_store:
        pytest.skip("this engine keeps no layers as they are")
    folder, root = small_torch(tmp_path / "index"), tmp_path / "project"
    name = unique_image()
    # BuildKit has kept nothing of it.
    own = {"sympy/core/a.py": f"NAME = {name!r}\n"}
    files = {"sympy/__init__.py": "", "sympy/core/tests/test_a.py": "", **own}
    stand_in_wheel(folder, "sympy", "1.14.0", files=files)
    image = {"template": "torch", "title": "PyTorch", "packages": ["sympy"], "slim": ["tests"]}
    with serve_index(folder, name="cpu") as index:
        write_project(
            root,
            rows=[{"vendor": "cpu", "targets": "x86_64", "torch": "2.13.0"}],
            images={name: image},
            indexes={"cpu": index.url},
        )
        project = Project(root=root, environment={**alone, "PIP_INDEX_URL": index.url})
        before = cached_steps(engine, COMPILER)
        composed = built_by(project, "--layers")
        told = layers_told(client, composed["image_id"])
        assert any("torch==" in one for one in told)
        assert any("byte code of" in one for one in told)
        store = Path(alone["XDG_CACHE_HOME"], "warpfront", "layers", "blobs", "sha256")
        assert is_linked(engine, composed["image_id"], store)
        assert cached_steps(engine, COMPILER) <= before
        assert cached_steps(engine, "install") - before, "of other steps they are there"
        assert built_by(project)["image_id"] == composed["image_id"], "what is there is reused"
        look = "cd /opt/venv/lib/python3; find . | sort; cat site-packages/sympy*/RECORD"
        by_layers = in_image(client, composed["image_id"], look)
        engine.remove(composed["reference"])
        by_run = built_by(project)
        assert not layers_told(client, by_run["image_id"])
        assert by_run["content_hash"] == composed["content_hash"]
        paths = [line for line in in_image(client, by_run["image_id"], look) if "sympy" in line]
    installers = ("INSTALLER", "RECORD,", "REQUESTED")
    left = [one for one in paths if not any(file in one for file in installers)]
    assert [one for one in by_layers if one in left] == left
    assert "./site-packages/sympy/core/a.py" in left
    assert not any("tests" in one for one in [*left, *by_layers] if "sympy" in one)


def is_linked(engine: Engine, image: str, store: Path) -> bool:
    """Whether the engine has the very files of the layer store, where it can have them so."""
    root, content = Path(engine.features().root), engine.content(image)
    own = embedded.EnginePlace(state=root.parent).host == engine.name
    if not own or content is None or root.stat().st_dev != store.stat().st_dev:
        return True
    theirs = {one.stat().st_ino for one in (content / "blobs" / "sha256").iterdir()}
    large = [one for one in store.iterdir() if one.stat().st_nlink > 1]
    return bool(large) and all(one.stat().st_ino in theirs for one in large)


# What imports most of torch, and compiles; by the sweep what calls most of it, too.
THROUGH_TORCH = ("load", "models")
SLIM = ("tests", "protoc", "headers", "static-libraries")
# The cell's own torch, and what `slim:` would have left out of it.
SLIMMED = """\
FROM {{ from_reference }}
RUN --network=none --mount=type=bind,target=/context \\
    {{ python }} /context/slim.py /context/globs.txt && \\
    PYTHONPATH=/opt/warpfront/lib {{ python }} -m warpfront_guard install \\
      --policy /opt/warpfront/guard/policy.json
"""


def test_a_real_torch_needs_nothing_of_what_slim_leaves_out(
    here: dict[str, str], cpu_image: str, client: docker.DockerClient, tmp_path: Path
) -> None:
    """In the image of torch that other tests use: it is built with `slim:` by --exhaustive, and of
    stand-ins above.
    """
    assert cpu_image
    name, root = unique_image(), tmp_path / "project"
    project_on_torch(root, {name: {"parent": "torch", "template": name, "title": "Slim"}})
    files = {"Dockerfile.j2": SLIMMED, **slim_files(removed(SLIM, ("x86_64",)))}
    for path, text in files.items():
        file = root / "images" / name / Path(path).name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    project = Project(root=root, environment=here)
    answers = project.invoke("build", "--json", timeout=900).expect(0).json
    assert answers[CPU_CELL]["reused"]
    is_without(client, answers[cell_id(name)]["image_id"])
    project.verify(THROUGH_TORCH, "--quick", "--image", name, timeout=900).expect(0)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("options", "sessions"),
    [
        pytest.param((), THROUGH_TORCH, id="built"),
        pytest.param(("--layers",), (*THROUGH_TORCH, "opinfo", "attention"), id="composed"),
    ],
)
def test_an_image_without_what_nothing_in_it_uses_is_verified(
    here: dict[str, str],
    client: docker.DockerClient,
    tmp_path: Path,
    options: tuple[str, ...],
    sessions: tuple[str, ...],
) -> None:
    image = {"template": "torch", "title": "PyTorch", "packages": ["numpy", "pip"], "slim": [*SLIM]}
    write_project(
        tmp_path / "project",
        rows=[{"vendor": "cpu", "targets": "x86_64", "torch": "2.13.0"}],
        images={unique_image(): image},
        indexes={},
    )
    project = Project(root=tmp_path / "project", environment=here)
    is_without(client, built_by(project, *options)["image_id"])
    project.verify(sessions, "--quick", timeout=900).expect(0)


def is_without(client: docker.DockerClient, image: str) -> None:
    """Fail where files that `SLIM` names are in an image, or torch is not."""
    gone = ("torch/include", "torch/test", "torch/bin/protoc")
    look = f"cd /opt/venv/lib/python3/site-packages; ls -d {' '.join(gone)} torch/nn || true"
    said = in_image(client, image, look)
    assert "torch/nn" in said
    assert not {*gone} & {*said}


def built_by(project: Project, *options: str) -> dict[str, Any]:
    answers: dict[str, dict[str, Any]] = (
        project.invoke("build", "--json", *options, timeout=900).expect(0).json
    )
    (built,) = answers.values()
    return built
