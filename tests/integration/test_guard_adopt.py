"""`warpfront-guard adopt` around a torch that came with a base: in the system's Python, among
Debian's dist-packages, where no virtual environment and no build of ours put it. It is a stand-in;
a real one, of a gigabyte, with --exhaustive.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import docker
import pytest
from adversary.stacks import Stack
from adversary.suite import STAND_INS
from docker.types import Mount
from standins import stand_in_wheel

from warpfront.pipeline.workspace import read_guard

pytestmark = [pytest.mark.docker, pytest.mark.network, pytest.mark.process]

SITE = "/usr/local/lib/python3.11/dist-packages"
# What a vendor's image looks like: torch in the system's Python, and nothing of ours.
VENDORS_IMAGE = f"""
set -e
mkdir -p {SITE} && cp -r /opt/venv/lib/python3.11/site-packages/. {SITE}/
rm -r {SITE}/00_warpfront* /opt/warpfront /etc/pip.conf /etc/uv /opt/venv
: > /usr/lib/python3.11/sitecustomize.py
mkdir -p /opt/warpfront/lib && cp -r /guard /opt/warpfront/lib/warpfront_guard
PYTHONPATH=/opt/warpfront/lib python3 -m warpfront_guard adopt > /dev/null
export UV_CONSTRAINT=/opt/warpfront/guard/constraints.txt
export PIP_CONSTRAINT="$UV_CONSTRAINT /opt/warpfront/guard/needs.txt"
export UV_BUILD_CONSTRAINT=/opt/warpfront/guard/overrides.txt PYTHONNOUSERSITE=1
/opt/warpfront/bin/warpfront-guard verify
mkdir -p /home/u && chown 1000:1000 /home/u
bare="env -i HOME=/home/u PATH=/usr/bin"
user() {{ setpriv --reuid 1000 --regid 1000 --clear-groups $bare "$@"; }}
pip="python3 -m pip install --break-system-packages --no-index --find-links /wheels torch==2.12.0"
set +e
"""


@pytest.fixture(
    scope="module", params=[STAND_INS, pytest.param("cpu", marks=pytest.mark.exhaustive)]
)
def stack(request: pytest.FixtureRequest, guarded: Callable[[str], Stack]) -> Stack:
    return guarded(request.param)


@pytest.fixture(scope="module")
def offered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The guard's files, and a stand-in of another torch."""
    folder = tmp_path_factory.mktemp("adopt")
    (folder / "guard").mkdir()
    for name, text in read_guard().items():
        (folder / "guard" / name).write_text(text, encoding="utf-8")
    (folder / "wheels").mkdir()
    files = {"torch/__init__.py": '__version__ = "2.12.0"\n'}
    stand_in_wheel(folder / "wheels", "torch", "2.12.0", files=files)
    return folder


@pytest.fixture(scope="module")
def adopted(stack: Stack, client: docker.DockerClient, offered: Path) -> str:
    """What the container of the vendor's image says to each attack, after one another."""
    shadow = "/home/u/.local/lib/python3.11/site-packages/torch"
    attacks = (
        "echo @root; $pip; echo code $?",
        "echo @user; user $pip --user; echo code $?",
        f"echo @shadow; mkdir -p {shadow}; echo > {shadow}/__init__.py",
        "user python3 -c 'import torch'; echo code $?; rm -r /home/u/.local",
        f"echo @edit; echo x=1 >> {SITE}/torch/version.py; python3 -c 'import torch'; echo code $?",
    )
    said: bytes = client.containers.run(
        stack.reference,
        ["bash", "-c", VENDORS_IMAGE + "\n".join(attacks)],
        environment={"PATH": "/usr/local/bin:/usr/bin:/bin", "UV_PYTHON": ""},
        mounts=[
            Mount(f"/{name}", str(offered / name), type="bind", read_only=True)
            for name in ("guard", "wheels")
        ],
        network_mode="none",
        stderr=True,
        remove=True,
    )
    return said.decode()


def after(said: str, mark: str) -> str:
    return said.partition(f"@{mark}\n")[2].partition("\n@")[0]


def test_what_is_adopted_verifies(adopted: str, stack: Stack) -> None:
    assert f"torch {stack.torch}: as it was sealed" in adopted.partition("@root")[0]


@pytest.mark.parametrize("who", ["root", "user"])
def test_pip_is_refused_in_the_systems_python_without_any_variable(
    adopted: str, stack: Stack, who: str
) -> None:
    said = after(adopted, who)
    holds = f"this image holds torch {stack.public}"
    assert f"warpfront guard: the command wants torch==2.12.0; {holds}" in said
    assert "code 1" in said


@pytest.mark.parametrize(
    ("mark", "words"),
    [
        ("shadow", "torch would come from /home/u/.local/"),
        ("edit", r"torch/version.py: \d+ bytes instead of"),
    ],
)
def test_the_import_names_what_changed(adopted: str, stack: Stack, mark: str, words: str) -> None:
    said = after(adopted, mark)
    assert f"warpfront guard: torch: the torch stack of this image (torch {stack.torch}" in said
    assert re.search(words, said)
    assert "code 1" in said


SEALED_IN_PLACE = """
rm -r /opt/warpfront/lib/warpfront_guard && cp -r /guard /opt/warpfront/lib/warpfront_guard
site=/opt/venv/lib/python3.11/site-packages
seal() {
  PYTHONPATH=/opt/warpfront/lib /opt/venv/bin/python3 -m warpfront_guard install \\
    --policy /opt/warpfront/guard/policy.json > /dev/null
}
imported() {
  python3 -c 'import sys, torch; print(sorted(sys.modules["warpfront_guard.fast_path"].vouched))'
  echo code $?
}
seal; echo @sealed; imported
echo '#' >> $site/torch/version.py; echo @edited; imported
seal; echo @again; imported
echo '#' >> $site/torch/version.py; echo @edited_again; imported
"""


def test_what_is_sealed_in_place_takes_the_fast_path_unless_its_layer_had_written_to_it(
    stack: Stack, client: docker.DockerClient, offered: Path
) -> None:
    said = client.containers.run(
        stack.reference,
        ["bash", "-c", SEALED_IN_PLACE],
        mounts=[Mount("/guard", str(offered / "guard"), type="bind", read_only=True)],
        network_mode="none",
        stderr=True,
        remove=True,
    ).decode()
    assert "'torch'" in after(said, "sealed")
    size = grown_by_two(after(said, "edited"))
    assert "'torch'" not in after(said, "again")
    assert "code 0" in after(said, "again")
    assert grown_by_two(after(said, "edited_again")) == size + 2


def grown_by_two(said: str) -> int:
    """Return the size of torch's file of its version, which is named as two bytes larger."""
    (sizes,) = re.findall(r"torch/version.py: (\d+) bytes instead of (\d+)", said)
    larger, size = map(int, sizes)
    assert larger == size + 2
    return size
