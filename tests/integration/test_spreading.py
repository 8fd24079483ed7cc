"""Images built on two engines of this machine as if they were two machines: each has its own, and
when one is killed in the middle the other ends what it had.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import docker
import pytest
import yaml
from grpc_door import Door, grpc_door
from projects import EngineWithBase, Project, cell_id, reference, small_project, unique_image
from standins import Index

from warpfront.images.engine import embedded
from warpfront.images.engine.protocol import Engine
from warpfront.system.process import cache_folder

pytestmark = [pytest.mark.docker, pytest.mark.process, pytest.mark.timeout(900)]

# Ends on every engine but the one that is to be killed: its containers know of its folder.
SLEEPS = "RUN --network=none if grep -q"
SLOW = (
    'FROM {{ from_reference }} AS environment\n{% include "_shared/wheels.j2" %}\n'
    'ENV PATH="/opt/venv/bin:$PATH"\n'
    f"{SLEEPS} @state /proc/self/mountinfo; then sleep 60; fi\n"
)


@dataclass(frozen=True, kw_only=True)
class Node:
    """A builder, and the state of its engine where that may be killed."""

    name: str
    host: str
    state: Path = Path("nowhere")

    def start(self) -> None:
        embedded.start(cache_folder(), self.state, print)

    def kill(self) -> None:
        pid = embedded.status(cache_folder(), self.state).pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    def has(self, image: str) -> bool:
        client = docker.DockerClient(base_url=self.host)
        try:
            # Asked once: of a list, what another run removes meanwhile is not found.
            return any(reference(image) in (one["RepoTags"] or ()) for one in client.api.images())
        finally:
            client.close()


@pytest.fixture(scope="module")
def nodes(engine: Engine, engine_with_base: EngineWithBase) -> Iterator[Mapping[str, Node]]:
    """One that may be killed, and everybody's, which has its base."""
    if os.geteuid():
        pytest.skip("the embedded engine needs root")
    with (
        tempfile.TemporaryDirectory(prefix="warpfront-test-") as folder,
        engine_with_base(Path(folder)) as place,
    ):
        one = Node(name="one", host=place.host, state=place.state)
        yield {"one": one, "two": Node(name="two", host=engine.name)}


def a_project(
    folder: Path, index: Index, alone: dict[str, str], nodes: Mapping[str, Node], *, slow: bool
) -> tuple[Project, tuple[str, ...]]:
    """An image a builder, which know nothing of each other."""
    names = tuple(unique_image() for _ in nodes)
    template = SLOW.replace("@state", str(nodes["one"].state))
    templates = dict.fromkeys(names, template) if slow else None
    root = small_project(folder, index.url, names=names, templates=templates)
    path = root / "matrix.yaml"
    matrix = yaml.safe_load(path.read_text())
    matrix["builders"] = {node.name: {"host": node.host} for node in nodes.values()}
    path.write_text(yaml.safe_dump(matrix, sort_keys=False))
    project = Project(root=root, environment=alone)
    project.invoke("lock").expect(0)
    return project, names


def placed(project: Project, name: str) -> str:
    return str(project.result(cell_id(name), "build-placed")["builder"])


def test_each_image_is_built_on_one_of_two_engines_and_on_no_other(
    nodes: Mapping[str, Node], index: Index, alone: dict[str, str], tmp_path: Path
) -> None:
    project, names = a_project(tmp_path / "project", index, alone, nodes, slow=False)
    said = project.invoke("build", "--spread", "--locked", timeout=600).expect(0).said
    assert "no builders" not in said
    where = {name: placed(project, name) for name in names}
    assert set(where.values()) == {"one", "two"}
    for name, builder in where.items():
        assert {node.name for node in nodes.values() if node.has(name)} == {builder}
        assert project.result(cell_id(name), "build")["reference"] == reference(name)
    again = project.invoke("build", "--spread", "--locked", "--json", timeout=600).expect(0)
    assert {one["reused"] for one in again.json.values()} == {True}
    assert {name: placed(project, name) for name in names} == where


def test_what_an_engine_had_that_is_killed_is_built_on_the_other(
    nodes: Mapping[str, Node], index: Index, alone: dict[str, str], tmp_path: Path
) -> None:
    project, names = a_project(tmp_path / "project", index, alone, nodes, slow=True)
    child = project.start("build", "--spread", "--locked")
    logs = project.root / "build" / ".builders"

    def sleeps() -> bool:
        found = (logs / "one").rglob("build.log")
        return any(SLEEPS in log.read_text() for log in found)

    child.wait_for(sleeps, seconds=300)
    nodes["one"].kill()
    try:
        ended = child.wait(600).expect(0)
    finally:
        nodes["one"].start()
    assert "builder one is gone" in ended.said
    assert {placed(project, name) for name in names} == {"two"}
    assert all(nodes["two"].has(name) for name in names)


@pytest.mark.exhaustive  # tests/unit/pipeline/test_spread_ends.py shows it of the same function
def test_a_builder_that_never_answers_gets_nothing(
    nodes: Mapping[str, Node], index: Index, alone: dict[str, str], tmp_path: Path
) -> None:
    gone = Node(name="one", host=f"unix://{tmp_path}/nowhere.sock")
    both = {"one": gone, "two": nodes["two"]}
    project, names = a_project(tmp_path / "project", index, alone, both, slow=False)
    said = project.invoke("build", "--spread", "--locked", timeout=600).expect(0).said
    assert "builder one does not answer" in said
    assert {placed(project, name) for name in names} == {"two"}
    only = {"one": gone, "three": gone}
    alone_project, _ = a_project(tmp_path / "other", index, alone, only, slow=False)
    assert "no builder that answers" in alone_project.invoke("build", "--spread").expect(10).said


@pytest.fixture
def farm(
    nodes: Mapping[str, Node], engine: Engine, alone: dict[str, str], tmp_path: Path
) -> Iterator[Door]:
    """The BuildKit of node one as a builder of buildx's driver `remote`, over TCP with certificates
    of both ends; it has no engine's images but its own.
    """
    alone["BUILDX_CONFIG"] = str(tmp_path / "buildx")
    socket = embedded.EnginePlace(state=nodes["one"].state).socket
    with grpc_door(socket, tmp_path) as door:
        words = ("create", "--name", "farm", "--driver", "remote", "--driver-opt", door.options)
        subprocess.run([*engine.buildx, *words, door.address], env=alone, check=True)
        yield door


@pytest.mark.exhaustive
@pytest.mark.usefixtures("farm")
def test_what_a_remote_builder_makes_comes_to_this_engine_and_stands_on_its_images(
    nodes: Mapping[str, Node], engine: Engine, index: Index, alone: dict[str, str], tmp_path: Path
) -> None:
    """A base that only this engine has, and a parent that a step before has brought here."""
    project, (parent, *_) = a_project(tmp_path / "project", index, alone, nodes, slow=False)
    path, child = project.root / "matrix.yaml", unique_image()
    matrix = yaml.safe_load(path.read_text())
    matrix["builders"] = {"farm": {"buildx": "farm"}}
    matrix["images"] = {
        parent: matrix["images"][parent],
        child: {"parent": parent, "template": child, "title": "A child"},
    }
    matrix["defaults"]["images"] = [parent, child]
    path.write_text(yaml.safe_dump(matrix, sort_keys=False))
    template = project.root / "images" / child / "Dockerfile.j2"
    template.parent.mkdir()
    for text in ("ENV AGAIN=0", "ENV AGAIN=1"):
        template.write_text(f"FROM {{{{ from_reference }}}}\n{text}\n")
        project.invoke("lock").expect(0)
        engine.remove(reference(parent))
        said = project.invoke("build", "--spread", "--json", timeout=600).expect(0).json
        assert said[cell_id(child)]["reused"] is False
        assert all(nodes["two"].has(name) for name in (parent, child))
        assert not any(nodes["one"].has(name) for name in (parent, child))
        assert {placed(project, name) for name in (parent, child)} == {"farm"}
    assert not list((project.root / "build").rglob("layouts"))


@pytest.mark.exhaustive
def test_a_remote_builder_that_is_gone_gets_nothing(
    nodes: Mapping[str, Node],
    engine: Engine,
    index: Index,
    alone: dict[str, str],
    tmp_path: Path,
) -> None:
    alone["BUILDX_CONFIG"] = str(tmp_path / "buildx")
    words = ("create", "--name", "farm", "--driver", "remote", "tcp://127.0.0.1:9")
    subprocess.run([*engine.buildx, *words], env=alone, check=True)
    project, names = a_project(tmp_path / "project", index, alone, nodes, slow=False)
    path = project.root / "matrix.yaml"
    matrix = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump({**matrix, "builders": {"farm": {"buildx": "farm"}}}))
    said = project.invoke("build", "--spread", timeout=600).expect(10).said
    assert "builder farm does not answer" in said
    alone["BUILDX_BUILDER"] = "farm"
    ended = project.invoke("build", "--image", names[0], timeout=600).expect(10)
    assert f"the engine went away while building {cell_id(names[0])}" in ended.said
