"""What goes wrong on real machines, seeded: each has one clear outcome and exit code, leaves
nothing half done behind, and the next run works.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import pytest
from projects import (
    EngineWithBase,
    Project,
    cell_id,
    half_written,
    reference,
    small_project,
    small_torch,
    unique_image,
    wait_until,
)
from standins import Fault, Index, serve_index

from warpfront.images.engine import embedded
from warpfront.images.engine.protocol import Engine
from warpfront.system.process import cache_folder

pytestmark = [
    pytest.mark.docker,
    # The SDK leaves a socket that could not connect to a dead daemon to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

INSTALLED = (
    'FROM {{ from_reference }} AS environment\n{% include "_shared/wheels.j2" %}\n'
    'ENV PATH="/opt/venv/bin:$PATH"\n'
)
# A step that whoever looks for it meets on a busy machine, too. No test waits for its end, and what
# a killed daemon leaves of it ends by itself.
SLEEPS = "RUN sleep 60"
LONG = INSTALLED + "RUN --network=none sleep 60\n"
SLOW = INSTALLED + "RUN --network=none sleep 5\n"
BAD = INSTALLED + "RUN --network=none echo this one is broken; exit 3\n"
# Every Python in the image takes a minute to start, so that its verification can be interrupted.
SLEEPY = (
    INSTALLED
    + "RUN --network=none echo 'import time; time.sleep(60)'"
    + " > /opt/venv/lib/python3.11/site-packages/sleepy.pth\n"
)
BIG = INSTALLED + "RUN --network=none dd if=/dev/zero of=/big bs=1M count=4000\n"
SWEPT = pytest.mark.exhaustive
SIGNALS = (pytest.param(signal.SIGINT, marks=SWEPT), signal.SIGTERM)

Make = Callable[..., Project]


@pytest.fixture
def project(tmp_path: Path, index: Index, alone: dict[str, str]) -> Make:
    """Makes a small project; `name` -> text of its template, or an image of `torch`'s."""

    def make(templates: dict[str, str] | None = None, *others: str, url: str = "") -> Project:
        names = (*(templates or {}), *others)
        folder = tmp_path / "project"
        root = small_project(folder, url or index.url, names=names, templates=templates)
        site = {"PIP_INDEX_URL": url} if url else {}
        return Project(root=root, environment={**alone, **site})

    return make


@pytest.fixture
def own_index(tmp_path: Path) -> Iterator[Index]:
    """An index to break."""
    with serve_index(small_torch(tmp_path / "wheels"), name="cpu") as served:
        yield served


def with_template(made: Project, image: str, text: str) -> Project:
    (made.root / "images" / image / "Dockerfile.j2").write_text(text, encoding="utf-8")
    return made


def containers_of(client: docker.DockerClient, image: str) -> list[str]:
    rows = client.api.containers(all=True, filters={"ancestor": image})
    return [row["Id"] for row in rows]


# --- death and signals ---


def test_a_daemon_killed_in_the_middle_of_a_build_is_named_and_the_next_build_works(
    project: Make, own_engine: embedded.EnginePlace
) -> None:
    image = unique_image()
    made = project({image: LONG})
    made.environment["DOCKER_HOST"] = own_engine.host
    child = made.start("build")
    child.wait_for(lambda: SLEEPS in child.said)
    pid = embedded.status(cache_folder(), own_engine.state).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    ended = child.wait(120).expect(10)
    assert f"the engine went away while building {cell_id(image)}" in ended.said
    assert "hint: " in ended.said
    assert half_written(made.root / "build") == []
    made.invoke("build").expect(10)
    embedded.start(cache_folder(), own_engine.state, print)
    answer = with_template(made, image, INSTALLED).invoke("build", "--json").expect(0).json
    assert answer[cell_id(image)]["reused"] is False


@pytest.mark.parametrize("number", SIGNALS)
def test_an_interrupted_build_leaves_nothing_and_the_next_one_works(
    project: Make, engine: Engine, number: signal.Signals
) -> None:
    image = unique_image()
    made = project({image: LONG})
    child = made.start("build")
    child.wait_for(lambda: SLEEPS in child.said)
    child.send(number)
    ended = child.wait().expect(130)
    assert "interrupted" in ended.said
    assert half_written(made.root / "build") == []
    assert engine.image(reference(image)) is None
    again = with_template(made, image, INSTALLED).invoke("build", "--json").expect(0)
    assert again.json[cell_id(image)]["reused"] is False


@pytest.mark.usefixtures("toolbox")
@pytest.mark.parametrize(
    ("how", "number"),
    [
        pytest.param("invoke", signal.SIGINT, marks=SWEPT),
        ("invoke", signal.SIGTERM),
        ("nox", signal.SIGINT),
    ],
)
def test_an_interrupted_verification_leaves_no_container(
    project: Make, client: docker.DockerClient, how: str, number: signal.Signals
) -> None:
    image = unique_image()
    made = project({image: SLEEPY})
    built = made.invoke("build", "--json").expect(0).json[cell_id(image)]
    child = made.start("verify") if how == "invoke" else made.start_nox()
    child.wait_for(lambda: bool(containers_of(client, built["image_id"])))
    child.send(number) if how == "invoke" else child.send_group(number)
    child.wait().expect(130)
    assert containers_of(client, built["image_id"]) == []
    assert half_written(made.root / "build") == []
    (row,) = made.invoke("report", "--json").expect(0).json
    assert (row["build"], row["verify"]) == ("built", "-")


# --- at once ---


def test_two_builds_at_once_on_one_folder_both_succeed_and_one_says_that_it_waits(
    project: Make,
) -> None:
    """The first is held with its lock until the second has said that it waits."""
    image = unique_image()
    made = project({image: SLOW})
    first = made.start("build", "--json")
    first.wait_for(lambda: "RUN sleep 5" in first.said)
    first.send(signal.SIGSTOP)
    try:
        second = made.start("build", "--json")
        second.wait_for(lambda: "waiting for another run on" in second.said)
    finally:
        first.send(signal.SIGCONT)
    answers = [child.wait().expect(0) for child in (first, second)]
    assert [answer.json[cell_id(image)]["reused"] for answer in answers] == [False, True]
    assert "waiting for another run on" not in answers[0].said
    assert half_written(made.root / "build") == []


def test_a_leaf_that_fails_does_not_stop_its_siblings(project: Make, engine: Engine) -> None:
    bad, good = unique_image(), unique_image()
    made = project({bad: BAD}, good)
    ended = made.invoke("build", "--json").expect(6)
    assert ended.json[cell_id(good)]["image_id"].startswith("sha256:")
    assert "exit code: 3" in ended.json[cell_id(bad)]["reason"]
    assert f"1 of 2 failed: {cell_id(bad)}" in ended.stderr
    log = Path(ended.json[cell_id(bad)]["log"])
    assert "this one is broken" in (made.root / log).read_text(encoding="utf-8")
    assert engine.image(reference(good)) is not None
    assert engine.image(reference(bad)) is None


# --- disks ---


@contextlib.contextmanager
def mounted(*arguments: str, at: Path) -> Iterator[None]:
    if os.geteuid():
        pytest.skip("only root can mount")
    done = subprocess.run(
        ["mount", *arguments, str(at)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"cannot mount here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(at)], check=True)


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[None]:
    with mounted("--bind", str(folder), at=folder):
        argv = ["mount", "-o", "remount,bind,ro", str(folder)]
        subprocess.run(argv, check=True)
        yield


def test_a_read_only_cache_that_has_everything_is_enough_to_build(
    project: Make, engine: Engine, cache: Path
) -> None:
    image = unique_image()
    made = project(None, image)
    made.invoke("build").expect(0)
    engine.remove(reference(image))
    shutil.rmtree(made.root / "build")
    with read_only(cache):
        answer = made.invoke("build", "--json").expect(0).json
    assert answer[cell_id(image)]["reused"] is False


def test_a_read_only_cache_that_lacks_a_wheel_is_an_error_that_says_so(
    project: Make, cache: Path
) -> None:
    made = project(None, unique_image())
    made.invoke("lock").expect(0)
    with read_only(cache):
        ended = made.invoke("build").expect(13)
    assert "Read-only file system" in ended.said
    assert str(cache) in ended.said
    assert half_written(made.root / "build") == []


def test_a_build_folder_that_cannot_be_written_is_an_error_that_says_so(project: Make) -> None:
    made = project(None, unique_image())
    (made.root / "build").mkdir()
    with mounted("-t", "tmpfs", "-o", "ro", "tmpfs", at=made.root / "build"):
        ended = made.invoke("build").expect(13)
    assert "Read-only file system" in ended.said
    assert "hint: the file system is read-only" in ended.said


@pytest.fixture
def small_disk(state: Path, tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk of 1.1 GB, of which the base takes half."""
    disk = tmp_path / "disk"
    with disk.open("wb") as file:
        file.truncate(1_100_000_000)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(disk)], check=True)
    with mounted("-o", "loop", str(disk), at=state):
        yield state


def test_a_full_disk_fails_its_cell_alone_and_gives_the_space_back(
    project: Make, small_disk: Path, engine_with_base: EngineWithBase
) -> None:
    big, small = unique_image(), unique_image()
    made = project({big: BIG}, small)
    with engine_with_base(small_disk) as place:
        made.environment["DOCKER_HOST"] = place.host
        made.invoke("build", "--image", small).expect(0)
        before = shutil.disk_usage(small_disk).free
        ended = made.invoke("build", "--json").expect(6)
        wait_until(lambda: shutil.disk_usage(small_disk).free > before - 100_000_000)
    assert ended.json[cell_id(big)]["reason"] == "the disk is full"
    assert ended.json[cell_id(big)]["kind"] == "infrastructure"
    assert "warpfront clean" in ended.json[cell_id(big)]["hint"]
    assert ended.json[cell_id(small)]["reused"] is True


# --- indexes and wheels ---


@pytest.mark.parametrize("how", ["wrong hash", pytest.param("truncated", marks=SWEPT)])
def test_a_wheel_that_does_not_arrive_intact_is_refused_and_the_next_build_works(
    project: Make, own_index: Index, cache: Path, how: str
) -> None:
    made = project(None, unique_image(), url=own_index.url)
    made.invoke("lock").expect(0)
    (wheel,) = own_index.folder.glob("torch-*.whl")
    content = wheel.read_bytes()
    wheel.write_bytes(content[:300] if how == "truncated" else content[:-1] + b"!")
    ended = made.invoke("build").expect(12)
    assert wheel.name in ended.said
    assert not list((cache / "wheelhouse").rglob("*.whl"))
    assert half_written(made.root / "build") == []
    wheel.write_bytes(content)
    made.invoke("build").expect(0)
    assert not list((cache / "wheelhouse").rglob("*.part*"))


def test_a_wheel_that_is_tampered_with_on_its_way_into_a_build_is_refused_and_brought_again(
    project: Make, own_index: Index, cache: Path
) -> None:
    """Same size, same time, same inode: the build's own hash is what finds it."""
    image = unique_image()
    made = project({image: INSTALLED}, url=own_index.url)
    made.invoke("build").expect(0)
    (kept,) = (cache / "wheelhouse").rglob("torch-*.whl")
    (offered,) = own_index.folder.glob("torch-*.whl")
    right = offered.read_bytes()
    shutil.rmtree(cache / "layers", ignore_errors=True)  # those that were made of it before
    tamper(kept)
    offered.write_bytes(kept.read_bytes())  # the one that is served, too: nothing else helps
    template = made.root / "images" / image / "Dockerfile.j2"
    template.write_text(f"{INSTALLED}ENV AGAIN=1\n", encoding="utf-8")
    ended = made.invoke("build").expect(12)
    assert f"{kept.name} was damaged on this disk: it is brought again" in ended.said
    assert f"{kept.name}: no source has it intact" in ended.said
    tampered, _ = kept.exists(), offered.write_bytes(right)
    assert not tampered
    made.invoke("build").expect(0)
    assert kept.read_bytes() == right


def tamper(path: Path) -> None:
    found = path.stat()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.write(data)
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


@pytest.mark.parametrize(
    "fault",
    [pytest.param(Fault(hang_seconds=60.0), marks=SWEPT, id="slow"), Fault(status=503)],
    ids=["slow", "refusing"],
)
def test_an_index_that_does_not_serve_blocks_its_cell(
    project: Make, own_index: Index, fault: Fault
) -> None:
    own_index.fail("/", fault)
    assert_blocked(project(None, unique_image(), url=own_index.url), own_index.url)


@SWEPT  # as the one that refuses; tests/unit/wheels shows how each is told from the others
def test_an_index_that_is_down_blocks_its_cell(project: Make, tmp_path: Path) -> None:
    with serve_index(small_torch(tmp_path / "wheels"), name="cpu") as served:
        pass
    assert_blocked(project(None, unique_image(), url=served.url), served.url)


def assert_blocked(made: Project, url: str) -> None:
    ended = made.invoke("build", "--json", timeout=120).expect(9)
    (cell,) = ended.json
    assert url in ended.json[cell]["reason"]
    assert f"1 of 1 blocked: {cell}" in ended.stderr
    assert not list((made.root / "images").rglob("pylock.*"))
    assert half_written(made.root / "build") == []


# --- kinds ---


def does_a_job(made: Project, image: str, step: str, *, code: int, tries: int) -> None:
    """A job of CI that may try once more; and its line, typed as it is said, ends as it did."""
    cell = cell_id(image)
    asked = ("job", "--step", step, "--name", "x", "--cells", cell, "--retries", "1")
    ended = made.invoke(*asked, *(["--on", "x86_64"] if step == "verify" else [])).expect(code)
    assert ended.said.count("the next try is in") == tries - 1
    (line,) = {one.strip() for one in re.findall("repeat: `(.*)`", ended.said)}
    made.invoke(*shlex.split(line)[1:]).expect(code)


@SWEPT
@pytest.mark.usefixtures("toolbox")
def test_each_kind_of_failure_is_tried_again_or_not_and_its_line_repeats_it(
    project: Make, own_index: Index
) -> None:
    """One after the other in one project, each mended before the next."""
    image = unique_image()
    made = project({image: INSTALLED}, url=own_index.url)
    made.invoke("lock").expect(0)

    def kind() -> str:
        return str(made.result(cell_id(image), "build")["kind"])

    engine_host = made.environment["DOCKER_HOST"]
    made.environment["DOCKER_HOST"] = "unix:///nowhere.sock"
    does_a_job(made, image, "build", code=10, tries=2)
    assert kind() == "infrastructure"
    made.environment["DOCKER_HOST"] = engine_host
    own_index.fail("torch", Fault(status=503))
    does_a_job(made, image, "build", code=12, tries=2)
    assert kind() == "infrastructure"
    assert f"would build {cell_id(image)}" in made.invoke("resume", "--dry-run").expect(0).said
    own_index.heal()
    lock = next((made.root / "images" / "locks").iterdir())
    right = lock.read_text()
    lock.write_text(re.sub('inputs = "[0-9a-f]+"', f'inputs = "{"0" * 64}"', right))
    does_a_job(made, image, "build", code=4, tries=1)
    assert kind() == "resolution"
    lock.write_text(right)
    with_template(made, image, BAD)
    does_a_job(made, image, "build", code=6, tries=1)
    assert kind() == "build"
    assert "not again" in made.invoke("resume", "--dry-run").expect(0).said
    with_template(made, image, INSTALLED).invoke("build").expect(0)
    does_a_job(made, image, "verify", code=7, tries=1)
    (row,) = made.invoke("report", "--json").expect(0).json
    assert row["kind"] == "verdict"


# --- hostile matrix.yaml ---

BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [{','.join(f'*{old}' for _ in range(9))}]\n"
    for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


HOSTILE = {
    "bomb": BOMB,
    "tag": "schema: !!python/object/apply:os.system ['touch owned']\n",
    "deep": "[" * 5000,
    "twice": "schema: 1\nschema: 1\n",
    "list": "- just\n- a list\n",
    "empty": "",
    "control": "\t\x00\x01",
    "newline": "schema: 1\nproject: {name: 'a\nRUN touch /owned'}\n",
    "number": "schema: " + "9" * 6000 + "\n",
}
# The door in front of the reader is one for all; tests/unit shows the reader each of them.
AT_THE_DOOR = ("bomb", "tag")


def of_children() -> float:
    """The processor's seconds, which a busy machine does not make more of."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(text, id=name, marks=() if name in AT_THE_DOOR else SWEPT)
        for name, text in HOSTILE.items()
    ],
)
def test_a_hostile_matrix_is_refused_in_a_moment_without_a_traceback(
    project: Make, text: str
) -> None:
    made = project(None, unique_image())
    (made.root / "matrix.yaml").write_text(text, encoding="utf-8")
    before = of_children()
    ended = made.invoke("build").expect(2)
    assert "error: matrix.yaml" in ended.said
    assert of_children() - before < 20
    assert not (made.root / "owned").exists()
    assert not (made.root / "build").exists()
