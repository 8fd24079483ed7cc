"""This repository's own CPU cell by the commands that users type, and faults seeded into its real
image, each of which verification has to name.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from projects import Project, half_written

from warpfront import pipeline
from warpfront.images import baking
from warpfront.images.built import BuiltImage
from warpfront.images.engine.buildx import BakeRequest
from warpfront.images.engine.protocol import Engine, RunRequest
from warpfront.images.labels import BASE_SOURCE, CELL, CONTENT_HASH
from warpfront.matrix.cell import Selection
from warpfront.pipeline.workspace import open_workspace
from warpfront.system.process import Command, run
from warpfront_checks.check_options import SESSIONS

# A whole verification beside four other workers takes fifteen minutes on two slow cores.
pytestmark = [pytest.mark.docker, pytest.mark.timeout(1800)]

CELL_ID = "cpu-x86_64-py311-torch2130-torch"
SERVE_ID = "cpu-x86_64-py311-torch2130-serve"
THE_CELL = ("--vendor", "cpu", "--image", "torch")
TARGET = "x86_64"
SITE_PACKAGES = "/opt/venv/lib/python3.11/site-packages"
# A uid that no image knows; only root can hand the folder of the results to another.
UNKNOWN = "12345" if os.geteuid() == 0 else str(os.geteuid())
AS_USER = ("--user", UNKNOWN) if os.geteuid() == 0 else ()
# Whatever becomes of them becomes of all others.
FEW = ("load", "numerics", "golden")
AT_START = f"{SITE_PACKAGES}/fault.pth"
OCI = "org.opencontainers.image"
# Debian's own wheels, from which `python3 -m venv` makes pip, came with the base.
LEFT_OVERS = """\
ls -d /wheels /tools /warpfront /root/.cache /var/lib/apt/lists/*_* 2>/dev/null
command -v nox
find / -xdev -name '*.whl' -not -path '/usr/share/python-wheels/*' 2>/dev/null
exit 0
"""
CACHES = """
import getpass, os, stat, torch
import torch._inductor.codecache
from torch._inductor.runtime.cache_dir_utils import cache_dir
home = os.path.expanduser("~")
print(getpass.getuser(), home, torch.hub.get_dir(), cache_dir(), sep=chr(10))
assert stat.S_IMODE(os.stat(home).st_mode) == 0o700
assert torch.compile(lambda x: x + 1, backend="aot_eager")(torch.ones(2)).tolist() == [2.0, 2.0]
"""


class Silent:
    """Nobody to tell."""

    def say(self, text: str) -> None:
        """Nobody listens."""

    def advance(self, what: str, done_bytes: int, total_bytes: int) -> None:
        """Nobody watches."""

    def step(self, cell_id: str, text: str) -> None:
        """Nobody watches."""

    def line(self, cell_id: str, text: str) -> None:
        """Nobody watches."""


@pytest.fixture(scope="module")
def built(own_project: Project, cpu_image: str) -> dict[str, Any]:
    """`warpfront build` of the cell, as JSON."""
    assert cpu_image
    answers = own_project.invoke("build", *THE_CELL, "--json", timeout=800).expect(0).json
    assert list(answers) == [CELL_ID]
    found: dict[str, Any] = answers[CELL_ID]
    return found


@pytest.fixture(scope="module")
def verified(own_project: Project, built: dict[str, Any]) -> dict[str, Any]:
    """`nox -s verify` of the cell, quickly, as a user without a passwd entry: what it left."""
    assert built["cell_id"] == CELL_ID
    own_project.nox(*THE_CELL, "--quick", *AS_USER, timeout=600).expect(0)
    found: dict[str, Any] = own_project.result(CELL_ID, f"verify-{TARGET}")
    return found


def inside(engine: Engine, image_id: str, script: str) -> tuple[int, list[str]]:
    lines: list[str] = []
    asked = RunRequest(image=image_id, command=("sh", "-c", script), time_limit_seconds=120)
    return engine.run(asked, lines.append).exit_code, lines


def test_the_image_is_verified_from_the_inside_and_reported(
    own_project: Project, built: dict[str, Any], verified: dict[str, Any]
) -> None:
    assert verified["content_hash"] == built["content_hash"]
    assert verified["image_id"] == built["image_id"]
    assert {check["session"] for check in verified["checks"]} == set(SESSIONS)
    assert {check["outcome"] for check in verified["checks"]} == {"passed"}
    effort = verified["environment"]["check_options"]
    assert (effort["quick"], effort["profile"], effort["seeds"]) == (True, "strict", 1)
    assert effort["seed_values"][0] >= 2**16, "seeds that development has not used"
    assert verified["environment"]["user"].partition(":")[0] == UNKNOWN
    (row,) = own_project.invoke("report", *THE_CELL, "--json").expect(0).json
    assert (row["cell_id"], row["target"], row["verify"]) == (CELL_ID, TARGET, "passed")
    assert row["checks_passed"] == row["checks"] == len(verified["checks"])
    assert row["size_bytes"] == built["size_bytes"] > 100_000_000
    assert half_written(own_project.root / "build") == []


# What HOME may be is told apart in tests/unit/warpfront_checks/test_guard_user.py.
@pytest.mark.parametrize("home", [None, pytest.param("/opt", marks=pytest.mark.exhaustive)])
def test_a_user_whom_the_image_does_not_know_can_import_compile_and_cache(
    built: dict[str, Any], engine: Engine, home: str | None
) -> None:
    """As `docker run --user 12345` and OpenShift start it: group 0, and HOME is `/` or nothing."""
    lines: list[str] = []
    asked = RunRequest(
        image=built["image_id"],
        command=(
            "sh",
            "-c",
            f"python3 -c '{CACHES}' && pip cache dir && uv cache dir && uv venv /tmp/v",
        ),
        time_limit_seconds=300,
        user="12345:0",
        environment={} if home is None else {"HOME": home},
    )
    assert engine.run(asked, lines.append).exit_code == 0, lines
    own = "/tmp/warpfront-12345"
    assert lines[:4] == [
        "uid_12345",
        own,
        f"{own}/.cache/torch/hub",
        f"{own}/temporary/torchinductor_uid_12345",
    ]
    assert lines[4:6] == [f"{own}/.cache/pip", f"{own}/.cache/uv"]


def test_a_second_build_reuses_and_asks_the_builder_nothing(
    own_project: Project, built: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(request: BakeRequest, _on_step: object) -> None:
        raise AssertionError(f"the builder was asked for {request.targets}")

    monkeypatch.setattr(baking, "bake", refuse)
    workspace = open_workspace(own_project.root)
    chosen = Selection(vendor="cpu", image="torch")
    locks = pipeline.lock(workspace, chosen, Silent(), locked=True)
    (again,) = pipeline.build(workspace, chosen, Silent(), locks=locks).values()
    assert isinstance(again, BuiltImage)
    assert again.reused
    assert again.image_id == built["image_id"]
    assert again.content_hash == built["content_hash"]


def test_the_image_says_what_it_is(engine: Engine, built: dict[str, Any]) -> None:
    image = engine.image(built["image_id"])
    assert image is not None
    labels = image.labels
    assert built["reference"] in image.references
    assert labels[CELL] == CELL_ID
    assert labels[CONTENT_HASH] == built["content_hash"]
    assert labels[BASE_SOURCE] in {"bootstrap", "registry"}
    assert labels["dev.warpfront.torch"] == "2.13.0+cpu"
    for name in ("title", "source", "licenses", "created", "version", "base.name", "base.digest"):
        assert labels[f"{OCI}.{name}"], name
    assert labels[f"{OCI}.base.digest"] == built["base"]["identity"]


def test_the_image_holds_torch_and_nothing_of_its_making(
    engine: Engine, built: dict[str, Any]
) -> None:
    code, lines = inside(
        engine,
        built["image_id"],
        LEFT_OVERS,
    )
    assert (code, lines) == (0, [])
    code, lines = inside(
        engine, built["image_id"], "python3 -c 'import torch; print(torch.__version__)'"
    )
    assert (code, lines) == (0, ["2.13.0+cpu"])


def test_the_service_image_is_built_on_the_very_image(
    own_project: Project, engine: Engine, built: dict[str, Any]
) -> None:
    answers = own_project.invoke("build", "--vendor", "cpu", "--image", "serve", "--json").expect(0)
    assert answers.json[CELL_ID]["image_id"] == built["image_id"]
    child = answers.json[SERVE_ID]
    image = engine.image(child["image_id"])
    assert image is not None
    assert image.labels[CELL] == SERVE_ID
    script = "python3 -c 'import torch, fastapi; print(torch.__version__)'"
    assert inside(engine, child["image_id"], script) == (0, ["2.13.0+cpu"])


# --- faults seeded into the real image ---


@pytest.fixture
def faulty(
    own_project: Project, engine: Engine, built: dict[str, Any], tmp_path: Path
) -> Iterator[Any]:
    """Verifies an image derived from ours by one shell command, as if it were ours: it inherits the
    labels, and only build.json is told of it. Gives what the checks said.
    """
    path = own_project.root / "build" / CELL_ID / "build.json"
    kept = path.read_text(encoding="utf-8")
    made: list[str] = []

    def verify(script: str) -> dict[tuple[str, str], tuple[str, str]]:
        reference = f"localhost/warpfront/test-{uuid.uuid4().hex[:8]}:fault"
        image_id = derive(engine, built["reference"], script, reference, tmp_path)
        made.append(reference)
        document = json.loads(kept)
        document["value"]["image_id"] = image_id
        path.write_text(json.dumps(document), encoding="utf-8")
        answer = own_project.verify(FEW, *THE_CELL, "--quick", timeout=800).expect(7)
        assert f"not verified: {CELL_ID} on {TARGET}" in answer.said
        (row,) = own_project.invoke("report", *THE_CELL, "--json").expect(0).json
        assert row["verify"] != "passed"
        return own_project.checks(CELL_ID, TARGET)

    yield verify
    path.write_text(kept, encoding="utf-8")
    for reference in made:
        engine.remove(reference)


def derive(engine: Engine, parent: str, script: str, reference: str, folder: Path) -> str:
    (folder / "fault.sh").write_text(script, encoding="utf-8")
    (folder / "Dockerfile").write_text(
        f"FROM {parent}\n"
        "RUN --network=none --mount=type=bind,target=/fault sh -e /fault/fault.sh\n",
        encoding="utf-8",
    )
    argv = (*engine.buildx, "build", "--load", "--provenance=false", f"--tag={reference}")
    run(Command(argv=(*argv, str(folder)), environment=engine.build_environment)).check()
    image = engine.image(reference)
    assert image is not None
    return image.id


def test_changed_metadata_a_missing_wheel_and_sessions_without_results_are_caught_at_once(
    faulty: Any,
) -> None:
    """`load` runs; the others end well and leave nothing, as forks of the process that imported
    torch and then alone, which is an error of each.
    """
    code = "import os, sys; {'warpfront_checks', 'load'} & {*sys.orig_argv} == "
    code += "{'warpfront_checks'} and os._exit(0); os.register_at_fork("
    code += "after_in_child=lambda: 'torch' in sys.modules and os._exit(0))"
    checks = faulty(
        f"sed -i 's/^Version: 2.13.0/Version: 2.12.0/' {SITE_PACKAGES}/torch-*.dist-info/METADATA\n"
        "python3 -m pip uninstall --yes --quiet networkx --root-user-action ignore\n"
        f'echo "{code}" > {AT_START}'
    )
    outcome, reason = checks["load", "versions"]
    assert outcome == "failed"
    assert "torch is 2.12.0+cpu, the lock has 2.13.0+cpu" in reason
    assert "networkx is not installed, the lock has" in reason
    assert checks["load", "dependencies"][0] == "failed"
    others = {session: said for (session, _), (said, _) in checks.items() if session != "load"}
    assert others == dict.fromkeys(FEW[1:], "error")


def test_a_torch_that_raises_at_import_is_caught(faulty: Any) -> None:
    line = "raise RuntimeError('seeded')"
    checks = faulty(f'echo "{line}" > {SITE_PACKAGES}/torch/__init__.py')
    outcome, reason = checks["load", "torch imports"]
    assert outcome in {"failed", "error"}
    # The image's own guard refuses the changed torch before it can raise.
    assert "warpfront guard: torch" in reason
    assert "was changed" in reason
    assert not [key for key, (said, _) in checks.items() if key[0] != "load" and said == "passed"]


def test_a_container_that_dies_at_once_is_an_error_and_no_pass(faulty: Any) -> None:
    checks = faulty(f'echo "import os; os._exit(0)" > {AT_START}')
    assert {outcome for outcome, _ in checks.values()} == {"error"}
    assert {session for session, _ in checks} == set(FEW)
