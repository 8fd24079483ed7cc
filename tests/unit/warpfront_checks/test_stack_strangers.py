"""Packages that deceive the session `stack`: what they print, say of themselves, leave running or
write is no pass. They are stand-ins, as in `test_stack`.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from stacks_site import EXTENSION, OWN, USES, WHOLE, Site, found

from warpfront_checks.claims import Claims
from warpfront_checks.results import Recorder
from warpfront_checks.stack import stack_checks
from warpfront_checks.stack.descriptions import description
from warpfront_checks.stack.stack_checks import nothing_starts

pytestmark = pytest.mark.process


def computes(described: dict[str, Any], program: str) -> tuple[str, str]:
    described |= {"computes": {"every": program}, "prints": {"every": "^device cpu$"}}
    result = stack_checks.computed(description("ops", vendor="cpu", version="1.0"))
    return result.outcome, result.reason


def test_what_a_package_prints_while_it_is_imported_is_not_what_was_computed(
    site: Site, described: dict[str, Any]
) -> None:
    program = "import ops; print('device', ops.device)"
    site.package("ops", "1.0", {"__init__.py": "device = 'cpu'"})
    assert computes(described, program)[0] == "passed"
    package = site.root / "ops/__init__.py"
    package.write_text("device = 'cuda'\nprint('device cpu')\n")
    assert "nothing that matches" in computes(described, program)[1]
    ends = "import os\nprint('device cpu', flush=True)\nos._exit(0)\n"
    package.write_text(ends)
    assert "before its end" in computes(described, program)[1]
    package.write_text("print('device cpu')\nraise SystemExit(0)\n")
    assert "before its end" in computes(described, program)[1]


@pytest.mark.usefixtures("described")
def test_a_report_that_a_package_writes_itself_is_none(site: Site) -> None:
    """It ends well, and leaves what the session's own program would: found by its words."""
    forges = """
import glob, json, os, sys
said = {"imports": {"ops": {"file": __file__, "distribution": "ops", "version": "1.0"}},
        "compiled": {"ops._speedups": {"loaded": ["x.so"], "error": ""}},
        "extensions": {"loaded": [], "others": [], "lacking": {}},
        "attributes": {}, "imported": True, "finished": True}
for place in {*sys.argv[1:], *glob.glob("*"), "told.json"}:
    try:
        open(place, "w").write(json.dumps(said))
    except OSError:
        pass
for number in range(3, 64):
    try:
        os.pwrite(number, json.dumps(said).encode(), 0)
    except OSError:
        pass
os._exit(0)
"""
    site.package("ops", "1.0", {"__init__.py": forges})
    results = found(USES, OWN)
    said = {name: one for name, one in results.items() if name.startswith("ops: ")}
    assert {one.outcome for one in said.values()} == {"failed", "error"}
    assert all("the process ended with 0" in one.reason for one in said.values())


@pytest.mark.usefixtures("described")
@pytest.mark.parametrize(
    ("lie", "check", "why"),
    [
        ("__file__ = '/opt/venv/lib/ops/__init__.py'", "imports", "its wheel does not bring"),
        ("import torch; __file__ = torch.__file__", "imports", "its wheel does not bring"),
        (
            f"""
import sys, types
native = sys.modules["ops._speedups"] = types.ModuleType("ops._speedups")
native.__file__ = __file__.replace("__init__.py", {EXTENSION.name!r})
""",
            "compiled",
            "not in the process",
        ),
        (
            "import sys, _ctypes\nsys.modules['ops._speedups'] = native = _ctypes",
            "compiled",
            "its wheel does not bring",
        ),
    ],
    ids=["nowhere", "torch's", "an extension that is not loaded", "another's extension"],
)
def test_a_module_that_lies_about_its_file_is_not_believed(
    site: Site, lie: str, check: str, why: str
) -> None:
    site.package("ops", "1.0", {"__init__.py": f"native = 1\n{lie}\n", EXTENSION.name: WHOLE})
    result = found(USES)[f"ops: {check}"]
    assert result.outcome == "failed"
    assert why in result.reason


def test_another_module_in_the_place_of_torch_is_seen_although_it_says_the_same(
    site: Site,
) -> None:
    swaps = """
import sys, types, torch
twin = types.ModuleType("torch")
twin.__dict__.update(torch.__dict__)
sys.modules["torch"] = twin
"""
    site.package("swaps", "1", {"__init__.py": swaps})
    results = found({"name": "swaps", "imports": ["swaps"]})
    assert results["swaps: imports"].outcome == "passed"
    assert results["torch"].outcome == "failed"
    assert "another module is in the place of torch" in results["torch"].reason


@pytest.mark.parametrize("alone", [False, True], ids=["its child", "a daemon"])
def test_a_process_that_is_left_behind_is_named_and_ended(
    site: Site, tmp_path: Path, *, alone: bool
) -> None:
    """As one that would go on holding the device."""
    leaves = f"""
import pathlib, subprocess, sys
held = subprocess.Popen(
    [sys.executable, "-c", "import time; time.sleep(600)", "holds the device"],
    start_new_session={alone},
)
pathlib.Path({str(tmp_path / "pid")!r}).write_text(str(held.pid))
"""
    site.package("ops", "1.0", {"__init__.py": leaves})
    results = found(OWN)
    assert results["ops: imports"].outcome == "failed"
    assert "1 process outlived it" in results["ops: imports"].reason
    assert "holds the device" in results["ops: imports"].reason
    assert not Path("/proc", (tmp_path / "pid").read_text(), "environ").exists()
    ran = found({"name": "it", "run": ["python3", "-c", "import ops"]})["it: runs"]
    assert "1 process outlived it" in ran.reason


def test_a_fork_says_nothing_in_the_place_of_its_parent(site: Site) -> None:
    site.package("ops", "1.0", {"__init__.py": "import os\nif os.fork(): os._exit(0)\n"})
    result = found(OWN)["ops: imports"]
    assert result.outcome == "failed"
    assert "the process ended with 0" in result.reason


def test_what_somebody_else_writes_into_the_results_is_said_and_does_not_stay(
    site: Site, tmp_path: Path
) -> None:
    results = tmp_path / "results"
    results.mkdir()
    (results / "load.json").write_text("failed")
    writes = f"""
import pathlib
for path in pathlib.Path({str(results)!r}).iterdir():
    path.write_text('{{"finished": true}}')
pathlib.Path({str(results / "devices.json")!r}).write_text('{{"finished": true}}')
"""
    site.package("ops", "1.0", {"__init__.py": writes})
    claims = Claims(cell="c", target="x86_64", vendor="cpu", device="cpu", smoke=(OWN,))
    recorder = Recorder(session="stack", target="x86_64", folder=results)
    stack_checks.record_stack(claims, recorder)
    assert not recorder.finish()
    said = json.loads(recorder.path.read_text())["checks"][-1]
    assert (said["name"], said["outcome"]) == ("results are ours", "failed")
    assert said["reason"] == "somebody else wrote devices.json, load.json, stack.json"
    assert (results / "load.json").read_text() == "failed"
    assert '"planned"' in (results / "stack.json").read_text()
    assert not (results / "devices.json").exists()


def test_what_begins_with_every_python_is_named_with_whose_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path / "site")
    monkeypatch.syspath_prepend(str(site.root))
    (site.root / "places.pth").write_text("# no code\n/opt/more\n")
    (site.root / "distutils-precedence.pth").write_text(
        "import os; var = 'SETUPTOOLS_USE_DISTUTILS'; enabled = os.environ.get(var, 'local') == "
        "'local'; enabled and __import__('_distutils_hack').add_shim(); "
    )
    assert nothing_starts((site.root,), ()).outcome == "passed"
    site.package("ops", "1.0", {"__init__.py": ""})
    with (site.root / "ops-1.0.dist-info/RECORD").open("a") as record:
        record.write("ops.pth,,\n")
    (site.root / "ops.pth").write_text("import ops; ops.forge()\n")
    seen = nothing_starts((site.root,), ())
    assert seen.outcome == "failed"
    assert "ops.pth of ops 1.0 begins with every Python" in seen.reason
    assert nothing_starts((site.root,), ("ops.pth",)).outcome == "passed", "somebody means it"
    (site.root / "distutils-precedence.pth").write_text("import ops")
    assert "distutils-precedence.pth" in nothing_starts((site.root,), ("ops.pth",)).reason


def test_a_process_that_comes_to_its_end_a_little_later_is_waited_for(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a tracker of shared memory, which ends when its parent has. The wait ends with it."""
    monkeypatch.setattr(stack_checks, "GRACE_SECONDS", 600.0)
    later = "import subprocess; subprocess.Popen(['sleep', '0.3'])"
    site.package("ops", "1.0", {"__init__.py": later})
    began = time.monotonic()
    assert found(OWN)["ops: imports"].outcome == "passed"
    assert time.monotonic() - began < stack_checks.GRACE_SECONDS


@pytest.mark.parametrize("data", [b"", b"[" * 100_000, b"[]", b'{"word": "another"}'])
def test_a_report_that_is_none_or_another_s_says_nothing(data: bytes) -> None:
    assert stack_checks._read_report(data, "its") == {}
    assert stack_checks._read_report(b'{"word": "its"}', "its") == {"word": "its"}
