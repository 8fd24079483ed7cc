"""Somebody's program, and a patched package, in a small image of a real engine."""

from __future__ import annotations

import hashlib
import json
import signal
from pathlib import Path

import docker
import pytest
import yaml
from projects import Project, cell_id, small_project, unique_image
from standins import Index, stand_in_wheel

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]

WHAT = "def device():\n    return 'cuda'\n"
PATCH = """\
--- a/app/what.py
+++ b/app/what.py
@@ -1,2 +1,2 @@
 def device():
-    return 'cuda'
+    return 'hpu'
"""
PROGRAM = """\
print("begun")
import pathlib, app.what
try:
    pathlib.Path(__file__).with_name("left").write_text("x")
except OSError as error:
    print("cannot write:", error)
print("device", app.what.device(), pathlib.Path(app.what.__file__).parts[1])
"""


@pytest.fixture
def made(tmp_path: Path, index: Index, alone: dict[str, str]) -> tuple[Project, str]:
    """A small project with one built image, and an index that has `app`."""
    files: dict[str, str | bytes] = {"app/__init__.py": "", "app/what.py": WHAT}
    stand_in_wheel(tmp_path / "wheels", "wf-stand-in-app", "1.0", files=files)
    image = unique_image()
    project = Project(
        root=small_project(tmp_path / "project", index.url, names=(image,)),
        environment={**alone, "PIP_FIND_LINKS": str(tmp_path / "wheels")},
    )
    project.invoke("build").expect(0)
    return project, image


def containers(client: docker.DockerClient, image_id: str) -> list[str]:
    rows = client.api.containers(all=True, filters={"ancestor": image_id})
    return [row["Id"] for row in rows]


def test_a_program_is_tried_and_what_it_lacks_comes_beside_the_image(
    made: tuple[Project, str], tmp_path: Path, client: docker.DockerClient
) -> None:
    project, image = made
    repo = tmp_path / "somebodys"
    repo.mkdir()
    (repo / "run.py").write_text(PROGRAM)
    (repo / "requirements.txt").write_text("wf-stand-in-app<2\n")
    asked = ("try", "--only", cell_id(image), "--repo", str(repo))
    lacking = project.invoke(*asked, "--", "python3", "run.py")
    assert lacking.code == 15, lacking.said
    assert "no app (/repo/run.py:2)" in lacking.stdout
    assert lacking.stdout.index("begun") < lacking.stdout.index("Traceback"), "as it was said"
    assert "--provides app=DISTRIBUTION" in lacking.stdout, "a name alone may be anybody's"
    given = (*asked, "--provides", "app=wf-stand-in-app")
    tried = project.invoke(*given, "--install", "--json", "--", "python3", "run.py").expect(0)
    found = json.loads(tried.stdout)
    assert (found["runs"], found["exit_code"]) == (2, 0)
    assert "cannot write:" in found["tail"]
    assert "device cuda try" in found["tail"]
    assert sorted(one.name for one in repo.iterdir()) == ["requirements.txt", "run.py"]
    running = project.start(*asked, "--", "sleep", "120")
    built = project.result(cell_id(image), "build")
    running.wait_for(lambda: bool(containers(client, built["image_id"])))
    running.send(signal.SIGINT)
    running.wait().expect(130)
    assert containers(client, built["image_id"]) == []


def test_an_image_with_a_patch_holds_the_patched_package_and_says_so(
    made: tuple[Project, str], client: docker.DockerClient
) -> None:
    project, image = made
    matrix = project.root / "matrix.yaml"
    (project.root / "patches").mkdir()
    (project.root / "patches/hpu.patch").write_text(PATCH)
    sha256 = hashlib.sha256(PATCH.encode()).hexdigest()
    before = project.result(cell_id(image), "build")["content_hash"]
    document = yaml.safe_load(matrix.read_text())
    patch = {"file": "patches/hpu.patch", "package": "wf-stand-in-app", "version": "1.0"}
    document["images"][image] |= {
        "packages": ["wf-stand-in-app"],
        "patches": [{**patch, "sha256": sha256, "reason": "for Gaudi"}],
    }
    matrix.write_text(yaml.safe_dump(document, sort_keys=False))
    built = project.invoke("build", "--json").expect(0).json[cell_id(image)]
    assert built["content_hash"] != before
    labels = client.images.get(built["image_id"]).labels
    assert labels["dev.warpfront.patched"].startswith("wf-stand-in-app 1.0+wf.p")
    said = client.containers.run(
        built["image_id"],
        ["/opt/venv/bin/python", "-c", "import app.what; print(app.what.device())"],
        remove=True,
    )
    assert said.decode().strip() == "hpu"
