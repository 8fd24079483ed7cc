"""The session `stack`: packages that import and do not run as they should are seen, each by its own
way. The packages are stand-ins, the extension in them is a real one, whole or damaged.
"""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from builders import a_cell, a_lock
from stacks_site import (
    EXTENSION,
    FALLS_BACK,
    OF_ANOTHER_TORCH,
    OWN,
    USES,
    WHOLE,
    WITHOUT_LIBRARY,
    Site,
    found,
    outcomes,
)

from warpfront.matrix.language import ExpectText, Smoke
from warpfront.verify.image_claims import image_claims
from warpfront_checks.claims import Claims, claims_from
from warpfront_checks.compiling.programs import Ended
from warpfront_checks.guard.policy import Policy
from warpfront_checks.results import Recorder, unavailable
from warpfront_checks.stack import descriptions, stack_checks
from warpfront_checks.stack.descriptions import description, names
from warpfront_checks.stack.elf_symbols import lacking, read_elf

pytestmark = pytest.mark.process


@pytest.mark.usefixtures("described")
def test_a_package_whose_compiled_code_loads_passes_and_says_where_it_came_from(
    site: Site,
) -> None:
    site.package("ops", "1.0", {"__init__.py": FALLS_BACK, EXTENSION.name: WHOLE})
    results = found(USES, OWN)
    assert set(outcomes(results).values()) == {"passed"}
    module = results["ops: imports"].details["modules"]["ops"]  # type: ignore[index]
    assert module["file"] == str(site.root / "ops/__init__.py")
    assert (module["distribution"], module["version"]) == ("ops", "1.0")
    assert results["ops: compiled"].reason == EXTENSION.name
    entry = descriptions.table()["ops"][0]
    for device, outcome in {"cpu": "passed", "hpu": "failed"}.items():
        program = {"every": "import ops; print('device', 'cpu')"}
        entry |= {"computes": program, "prints": {"every": f"^device {device}$"}}
        computes = stack_checks.computed(description("ops", vendor="cpu", version="1.0"))
        assert computes.outcome == outcome
    assert results["devices"].details["counts"] == {"ops": {"cuda": 2, "hpu": 0}}


@pytest.mark.parametrize(
    ("extension", "why"),
    [
        (OF_ANOTHER_TORCH, "lacks symbols (built against another torch?): demangled PyUnicode_Nix"),
        (WITHOUT_LIBRARY, "lacks libq.so.6"),
        (None, "(its wheel brings no such file)"),
    ],
    ids=["another torch", "a library less", "not in the wheel"],
)
def test_a_silent_fallback_is_no_pass_although_the_import_works(
    site: Site, described: dict[str, Any], extension: bytes | None, why: str
) -> None:
    files: dict[str, str | bytes] = {"__init__.py": FALLS_BACK}
    site.package("ops", "1.0", {**files, **({EXTENSION.name: extension} if extension else {})})
    results = found(USES)
    assert results["ops: imports"].outcome == "passed"
    assert results["ops: compiled"].outcome == "failed"
    assert why in results["ops: compiled"].reason
    assert results["ops: no fallback"].outcome == "failed"
    assert "it runs in Python (native code is not there" in results["ops: no fallback"].reason
    described["signs"] = described["signs"][1:]
    quiet = found(USES)["ops: no fallback"]
    assert "nothing is in its place (ops.native is a NoneType)" in quiet.reason
    if extension:
        # Nobody described it: what does not load is found all the same.
        own = found(OWN)["ops: extensions load"]
        assert own.outcome == "failed"
        assert f"a fallback is taken: {EXTENSION.name}: {why}" in own.reason


def test_of_what_is_described_for_others_only_every_extension_has_to_load(
    site: Site, described: dict[str, Any]
) -> None:
    """As lmcache before 0.5 on the CPU, whose operations are CUDA's."""
    described |= {"compiled": {"nvidia": ["ops._speedups"]}, "signs": []}
    files: dict[str, str | bytes] = {"__init__.py": FALLS_BACK, EXTENSION.name: WITHOUT_LIBRARY}
    site.package("ops", "1.0", files)
    results = found(USES)
    assert "ops: no fallback" not in results
    assert results["ops: extensions load"].outcome == "failed"
    assert "lacks libq.so.6" in results["ops: extensions load"].reason


@pytest.mark.usefixtures("described")
def test_python_in_the_place_of_an_extension_is_no_extension(site: Site) -> None:
    site.package("ops", "1.0", {"__init__.py": FALLS_BACK, "_speedups.py": "slow = True\n"})
    results = found(USES)
    assert "which is no extension" in results["ops: compiled"].reason


def test_a_library_that_has_to_be_in_the_process_is_looked_for_there(
    site: Site, described: dict[str, Any]
) -> None:
    described["compiled"] = {"every": ["file:*/libops_*.so"]}
    described["signs"] = []
    loads = (
        "import ctypes, pathlib\nctypes.CDLL(str(pathlib.Path(__file__).with_name('libops_1.so')))"
    )
    site.package("ops", "1.0", {"__init__.py": loads, "libops_1.so": WHOLE, "libops_2.so": WHOLE})
    assert found(USES)["ops: compiled"].reason == "libops_1.so"
    (site.root / "ops/__init__.py").write_text("lib = None\n")
    assert found(USES)["ops: compiled"].reason.startswith("file:*/libops_*.so: not in the process")


def test_what_is_not_there_dies_hangs_or_hides_devices_is_said(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = found({"name": "gone", "imports": ["gone"]})
    assert "No module named 'gone'" in missing["gone: imports"].reason
    site.package("dies", "1", {"__init__.py": "import os; os.abort()"})
    dies = found({"name": "dies", "imports": ["dies"]})
    assert "the process ended with -6" in dies["dies: imports"].reason
    assert dies["dies: extensions load"].outcome == "failed"
    site.package("cut", "1", {"__init__.py": "", EXTENSION.name: WHOLE[:500]})
    cut = found({"name": "cut", "imports": ["cut"]})
    assert f"a fallback is taken: {EXTENSION.name}: " in cut["cut: extensions load"].reason
    # Mapped, and its end is behind the file's: the loader itself is killed.
    (site.root / "cut" / EXTENSION.name).write_bytes(WHOLE[:4096])
    cut = found({"name": "cut", "imports": ["cut"]})
    assert cut["cut: imports"].outcome == "passed"
    killed = f"while {site.root / 'cut' / EXTENSION.name} was loaded"
    assert killed in cut["cut: extensions load"].reason
    site.package("hides", "1", {"__init__.py": "import os; os.environ['SEEN'] = '0'"})
    hides = found({"name": "hides", "imports": ["hides"]})
    assert hides["devices"].outcome == "failed"
    assert "before it" in hides["devices"].reason
    site.package("hangs", "1", {"__init__.py": "import time; time.sleep(60)"})
    monkeypatch.setattr(stack_checks, "SECONDS", 0.5)
    hangs = found({"name": "hangs", "imports": ["hangs"]})
    assert "stopped after" in hangs["hangs: imports"].reason


def test_a_package_that_swaps_torch_is_seen(site: Site) -> None:
    swaps = "import torch; torch.__version__ = '2.8.0+cu128'"
    site.package("swaps", "1", {"__init__.py": swaps})
    results = found({"name": "swaps", "imports": ["swaps"]})
    assert results["torch"].outcome == "passed", "without a lock nothing else is claimed"
    claims = Claims(
        cell="c", target="t", vendor="cpu", device="cpu", versions={"torch": "2.13.0+cpu"}
    )
    told = [("swaps", stack_checks.imported(("swaps",)))]
    wrong = stack_checks.same_torch(claims, told)
    assert wrong.outcome == "failed"
    assert "swaps: torch is 2.8.0+cu128" in wrong.reason


def test_a_guard_that_is_claimed_and_not_there_is_no_seal() -> None:
    policy = Policy(cell="c", title="t", protected={"torch": "2.13.0+cpu"}).document()
    claims = Claims(cell="c", target="t", vendor="cpu", device="cpu", guard=policy)
    assert stack_checks.same_torch(claims, []).outcome == "failed"


@pytest.mark.parametrize(
    ("entry", "outcome", "reason"),
    [
        ({"run": ["python3", "-c", "print('torch 3')"], "prints": "^torch 3$"}, "passed", "exit 0"),
        (
            {"run": ["python3", "-c", "print('torch 3')"], "prints": "^torch 4$"},
            "failed",
            "nothing",
        ),
        ({"run": ["python3", "-c", "exit(3)"]}, "failed", "exit 3, not 0"),
        ({"run": ["python3", "-c", "exit(3)"], "exit": 3}, "passed", "exit 3"),
        ({"run": ["no-such-program"]}, "failed", "no-such-program: not in the image"),
        ({"run": ["sleep", "60"], "seconds": 0.3}, "failed", "stopped after 0.3 s"),
        ({"run": ["true"], "needs": "device"}, "unavailable", "needs a device"),
    ],
)
def test_a_command_is_judged_by_its_end_its_words_and_its_time(
    entry: dict[str, Any], outcome: str, reason: str
) -> None:
    result = next(iter(found({"name": "it", **entry}).values()))
    assert result.outcome == outcome
    assert reason in result.reason


def test_a_command_sees_the_images_packages_and_not_the_session_s_own(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Path(stack_checks.__file__).parents[2]
    monkeypatch.setenv("PYTHONPATH", f"{source}:{site.root}")
    assert stack_checks.users_environment() == {"PYTHONPATH": str(site.root)}


def test_what_is_for_another_vendor_is_unavailable_and_says_for_whom(
    described: dict[str, Any],
) -> None:
    described["vendors"] = {"cpu": "ops is AMD's"}
    assert found(USES)["ops"] == unavailable("ops is AMD's")


def test_the_session_leaves_every_check_it_planned(tmp_path: Path) -> None:
    claims = Claims(
        cell="c",
        target="x86_64",
        vendor="cpu",
        device="cpu",
        smoke=({"name": "true", "run": ["true"]},),
    )
    recorder = Recorder(session="stack", target="x86_64", folder=tmp_path)
    stack_checks.record_stack(claims, recorder)
    assert recorder.finish()
    assert recorder.planned == (
        "true: runs",
        "devices",
        "torch is still sealed",
        "what begins with Python",
        "results are ours",
    )


def test_a_file_that_is_cut_short_or_says_nonsense_needs_nothing_that_is_known() -> None:
    tables, chance = int.from_bytes(WHOLE[40:48], "little"), random.Random(1)
    for length in (6, 20, 64, 1000, tables, len(WHOLE) - 10):
        assert len(read_elf(WHOLE[:length])) == 2
    for _ in range(300):
        data = bytearray(WHOLE)
        for place in (chance.randrange(64), chance.randrange(tables, len(WHOLE))):
            data[place] = chance.randrange(256)
        assert len(read_elf(bytes(data))) == 2


def test_an_elf_file_says_what_it_needs_and_nothing_else_does() -> None:
    needed, wanted = read_elf(WHOLE)
    assert "libc.so.6" in needed
    assert "PyUnicode_New" in wanted
    assert read_elf(b"#!/bin/sh\n" * 20) == ((), ())
    assert lacking(EXTENSION)["said"] == ""


def test_every_description_is_dated_and_sourced_and_its_patterns_are_patterns() -> None:
    wanted = {"lmcache", "vllm", "flash-attn", "aiter", "bitsandbytes", "xformers"}
    assert wanted | {"deepspeed", "accelerate", "transformers", "torchao"} == set(names())
    for name in names():
        for vendor in ("nvidia", "amd", "cpu", "gaudi"):
            for version in ("", "0.3.9", "99.0"):
                known = description(name, vendor=vendor, version=version)
                assert re.fullmatch(r"20\d\d-\d\d-\d\d", known.read)
                assert all("://" in one for one in known.sources)
                for sign in known.signs:
                    assert sign.means
                    assert sign.log or sign.type or sign.value
                    for pattern in (sign.log, sign.type, sign.value, known.prints):
                        re.compile(pattern)
                assert bool(known.computes) == bool(known.prints) or not known.computes
                if known.computes:
                    compile(known.computes, name, "exec")


def test_lmcache_is_another_stack_on_each_of_its_three_platforms() -> None:
    """Seeds' case: c_ops before 0.5, cuda_ops after; on Gaudi the torch baseline is its own way."""
    old = {v: description("lmcache", vendor=v, version="0.3.9") for v in ("nvidia", "amd", "gaudi")}
    new = {v: description("lmcache", vendor=v, version="0.5.6") for v in ("nvidia", "amd", "gaudi")}
    assert old["amd"].compiled == old["nvidia"].compiled == ("lmcache.c_ops",)
    assert "lmcache.cuda_ops" in new["amd"].compiled
    assert new["gaudi"].compiled == ("lmcache.lmcache_native",)
    assert [one.prints for one in new.values()] == [
        "^device cuda$",
        "^device cuda$",
        "^device hpu$",
    ]
    said = "Fallback to python backend lmcache.non_cuda_equivalents"
    assert any(re.search(sign.log, said) for sign in old["amd"].signs if sign.log)
    said = (
        "lmcache.cuda_ops compiled extension not found; CudaDeviceOps stays on the torch baseline"
    )
    assert any(re.search(sign.log, said) for sign in new["amd"].signs if sign.log)
    assert not any(re.search(sign.log, said) for sign in new["gaudi"].signs if sign.log)


def test_claims_carry_what_is_tried_on_the_cell_s_vendor_and_are_read_back() -> None:
    smoke = (
        Smoke(name="lmcache", uses="lmcache", starts=("lmcache.pth",)),
        Smoke(name="aiter", uses="aiter", vendors=("amd",)),
        Smoke(
            name="serve",
            run=("python", "-c", "1"),
            expect=ExpectText(exit=3, prints="x"),
            timeout_seconds=5,
        ),
    )
    cell = a_cell(smoke=smoke)
    policy = Policy(cell="c", title="t", protected={})
    made = image_claims(cell, a_lock(cell), policy, target="x86_64")
    assert [one["name"] for one in made.smoke] == ["lmcache", "serve"]
    assert made.smoke[0]["starts"] == ["lmcache.pth"]
    assert made.smoke[1]["run"] == ["python", "-c", "1"]
    assert (made.smoke[1]["exit"], made.smoke[1]["prints"]) == (3, "x")
    assert claims_from(json.loads(json.dumps(made.document()))) == made


def test_what_was_not_imported_has_no_fallback_that_is_known() -> None:
    ended = Ended(argv=("python",), returncode=0, output="", seconds=0.1)
    said = {"imported": True, "finished": True, "imports": {"ops": {"error": "none"}}}
    told = stack_checks.ImportReport(document=said, run=ended)
    known = description("lmcache", vendor="cpu", version="0.5.6")
    assert stack_checks.no_fallback(told, known).reason == "not known: ops was not imported"
