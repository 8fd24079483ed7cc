"""What goes into an image as a file, and what comes out of one, on a real engine: modes whatever
the umask, bytes whatever they are, results whatever somebody made of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from projects import REPOSITORY, Project, cell_id, small_project, unique_image
from standins import Index

from warpfront.images.engine.protocol import Engine, RunRequest

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]

INSTALLED = (
    'FROM {{ from_reference }} AS environment\n{% include "_shared/wheels.j2" %}\n'
    'ENV PATH="/opt/venv/bin:$PATH"\n'
)
GUARD = (REPOSITORY / "images" / "_shared" / "guard.j2").read_text(encoding="utf-8")
CHECK = (
    "RUN --network=none --mount=type=tmpfs,target=/tmp start=$(date +%s) && \\\n"
    "    warpfront-guard verify"
)
FILES = INSTALLED + '{% include "_shared/guard.j2" %}\nCOPY . /app/\n'
CLOSED = INSTALLED + GUARD.replace(CHECK, f"RUN chmod -R go-rwx /opt/warpfront/lib\n{CHECK}")
# As large as it was, and small: a build reads those that it has just installed.
EDIT = "RUN sed -i s/2.13.0/2.14.0/ /opt/venv/lib/python3.11/site-packages/torch/__init__.py\n"
WRONG = {
    "closed": CLOSED,
    "before": INSTALLED + EDIT + GUARD,
    "between": INSTALLED + GUARD.replace(CHECK, f"{EDIT}{CHECK}"),
    "after": INSTALLED + GUARD + EDIT,
}
assert CLOSED.count("chmod") == 1
assert all(WRONG[kind].count(EDIT) == 1 for kind in ("before", "between", "after"))
FEW = ("load", "numerics")
PICTURE = b"\x89PNG\r\n\x1a\n\0\xff"
# Runs at the end of every Python in the image, after the results were written.
ATTACK = (
    "import atexit, os; atexit.register(lambda: os.path.exists('/results/load.json') and "
    "(os.unlink('/results/load.json'), os.mkfifo('/results/load.json'), "
    "os.makedirs('/results/deep/er', exist_ok=True), os.chmod('/results/deep', 0)))"
)
HOSTILE = INSTALLED + "COPY attack.pth /opt/venv/lib/python3.11/site-packages/\n"
LISTING = """
import hashlib, os, sys
name_of_image = sys.argv[1].encode()
for top in ("/app", "/opt/warpfront"):
    for where, folders, names in os.walk(top):
        for name in sorted(["", *names]):
            path = os.path.join(where, name)
            if os.path.islink(path):
                print("link", os.readlink(path), path)
            else:
                text = open(path, "rb").read().replace(name_of_image, b"") if name else b""
                print(f"{os.lstat(path).st_mode:o}", hashlib.sha256(text).hexdigest()[:12], path)
"""


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.fixture
def project(tmp_path: Path, index: Index, alone: dict[str, str]) -> Callable[..., Project]:
    """A small project with one image, of this template."""

    def make(image: str, template: str) -> Project:
        folder = tmp_path / image
        root = small_project(folder, index.url, names=(image,), templates={image: template})
        return Project(root=root, environment=alone)

    return make


# What says when it was made, or what such files hash to: the same in its mode alone.
OWN = (".json",)


def listing(engine: Engine, image_id: str, name: str) -> list[str]:
    """Mode, content and path of every file that a build put there."""
    lines: list[str] = []
    command = ("python3", "-c", LISTING, name)
    request = RunRequest(image=image_id, command=command, time_limit_seconds=60, user="0:0")
    assert engine.run(request, on_line=lines.append).exit_code == 0, lines
    listed = []
    for line in lines:
        mode, content, path = line.split()
        own = any(word in path for word in OWN)
        if "__pycache__" not in path:
            listed.append(f"{mode} {'' if own else content} {path.replace(name, 'NAME')}")
    return listed


def test_images_made_under_different_umasks_are_equal_and_hold_files_as_they_are(
    project: Callable[..., Project], engine: Engine
) -> None:
    listings = []
    for mask in (0o077, 0o022):
        image = unique_image()
        made = project(image, FILES)
        folder = made.root / "images" / image
        with umask(mask):
            (folder / ".hidden").mkdir()
            (folder / ".hidden" / "logo.png").write_bytes(PICTURE)
            (folder / "run.sh").write_text("#!/bin/sh\n")
            (folder / "run.sh").chmod(0o700)
            (folder / "link").symlink_to(".hidden/logo.png")
            built = made.invoke("build", "--json").expect(0).json[cell_id(image)]
        assert built["reused"] is False
        listings.append(listing(engine, built["image_id"], image))
    assert listings[0] == listings[1]
    assert any(line.startswith("100644") and line.endswith("logo.png") for line in listings[0])
    assert any(line.startswith("100755") and line.endswith("/app/run.sh") for line in listings[0])
    assert "link .hidden/logo.png /app/link" in listings[0]
    assert any("/opt/warpfront/lib/warpfront_guard/" in line for line in listings[0])


def test_a_guard_that_only_root_can_read_and_a_torch_that_a_step_edits_are_found(
    tmp_path: Path, index: Index, alone: dict[str, str]
) -> None:
    """By the build itself; what its last step edits, by the verification."""
    names = {kind: unique_image() for kind in WRONG}
    templates = {names[kind]: template for kind, template in WRONG.items()}
    root = small_project(
        tmp_path / "project", index.url, names=tuple(templates), templates=templates
    )
    made = Project(root=root, environment=alone)
    ended = made.invoke("build", "--json")
    assert ended.code == 6
    answers = ended.json
    reasons = {kind: answers[cell_id(name)].get("reason", "") for kind, name in names.items()}
    assert "as it was sealed" in reasons["closed"]  # said to root
    assert "No module named 'warpfront_guard'" in reasons["closed"]
    edited = "torch/__init__.py: other content"
    assert f"is not what its wheels hold: {edited}" in reasons["before"]
    assert f"file: {edited}" in reasons["between"]
    assert reasons["after"] == ""
    made.verify(FEW, "--image", names["after"], "--quick", timeout=120).expect(7)
    outcome, reason = made.checks(cell_id(names["after"]), "x86_64")["load", "guard"]
    assert outcome == "failed"
    assert f"file: {edited}" in reason


def test_a_fifo_in_the_place_of_results_is_an_error_and_the_next_run_begins_anew(
    project: Callable[..., Project],
) -> None:
    """With a noxfile that cannot be read here, and without one: nobody reads it."""
    image = unique_image()
    made = project(image, HOSTILE)
    (made.root / "images" / image / "attack.pth").write_text(ATTACK + "\n")
    (made.root / "noxfile.py").write_text("import yaml_of_somebody\n")
    made.invoke("build").expect(0)
    for _ in range(2):
        made.verify(FEW, "--quick", timeout=120).expect(7)
        said = made.checks(cell_id(image), "x86_64")
        assert said["load", "results"][0] == "error"
        assert "load.json: a FIFO, not a regular file" in said["load", "results"][1]
        (made.root / "noxfile.py").unlink(missing_ok=True)
