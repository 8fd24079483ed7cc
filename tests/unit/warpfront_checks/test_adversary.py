"""The adversarial suite's own judgement: it sees what was changed, and nothing else."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from adversary.cases import Case, read_cases, read_parts
from adversary.inside import changes, fingerprint, recorded, says_nothing_new, state
from adversary.judge import Verdict, is_worse, judged, problem
from adversary.packages import offer
from adversary.runner import Arena, Tools
from adversary.stacks import CPU, SITE_PACKAGES, STACKS, Stack
from adversary.suite import (
    ALIKE,
    DEAR,
    NEWEST,
    always_held,
    document,
    is_offered,
    pairs,
    representatives,
)
from adversary.table import BEGIN, END, counted, suite_table, with_table
from standins import stand_in_wheel

CASES = read_cases()


def measurement(**changed: Any) -> Mapping[str, Any]:
    """One of a stack that is as it was."""
    whole: dict[str, Any] = {
        "exit_code": 0,
        "said": "",
        "changed": {},
        "changed_counts": {},
        "arrived": [],
        "probe": {
            "ok": True,
            "file": f"{SITE_PACKAGES}/torch/__init__.py",
            "version": "2.13.0",
            "told": [],
        },
        "known": [],
        "relaxed": [],
        "built": None,
        "verify": {"state": "clean", "findings": []},
    }
    return whole | changed


REFUSED = {"ok": False, "error": "ImportError: warpfront guard: torch: changed", "told": []}
FINDINGS = {"state": "findings", "findings": ["file: torch/version.py: other content"]}
ELSEWHERE = {
    "ok": True,
    "file": "/somewhere/torch/__init__.py",
    "version": "2.13.0+cpu",
    "told": [],
}
OTHER_LIBRARY = {
    "ok": True,
    "file": f"{SITE_PACKAGES}/torch/__init__.py",
    "version": "2.13.0",
    "told": [],
    "strangers": ["/opt/libtorch/libc10.so"],
}
OTHER = {"ok": True, "file": f"{SITE_PACKAGES}/torch/__init__.py", "version": "2.15.0", "told": []}
GONE = {"ok": False, "error": "ModuleNotFoundError: No module named 'torch'", "told": []}


@pytest.mark.parametrize(
    ("changed", "outcome"),
    [
        ({}, "intact"),
        ({"exit_code": 1}, "refused"),
        ({"changed_counts": {"new": 1}}, "silent"),
        ({"changed_counts": {"gone": 9}, "exit_code": 1}, "silent"),
        ({"probe": ELSEWHERE}, "silent"),
        ({"probe": OTHER}, "silent"),
        ({"probe": GONE}, "silent"),
        ({"probe": OTHER_LIBRARY}, "silent"),
        ({"built": "2.15.0"}, "silent"),
        ({"built": "2.13.0+cpu"}, "intact"),
        ({"changed_counts": {"new": 1}, "verify": {"state": "gone", "findings": []}}, "silent"),
        ({"changed_counts": {"new": 1}, "verify": FINDINGS}, "detected"),
        ({"changed_counts": {"new": 1}, "probe": REFUSED}, "detected"),
        ({"changed_counts": {"new": 1}, "relaxed": ["torch"]}, "relaxed"),
        ({"changed_counts": {"new": 1}, "relaxed": ["vllm"]}, "silent"),
        ({"probe": {**ELSEWHERE, "told": ["warpfront guard: torch is another"]}}, "detected"),
        ({"probe": {**OTHER, "told": []}}, "silent"),
        ({"verify": FINDINGS}, "detected"),
        ({"verify": FINDINGS, "known": FINDINGS["findings"]}, "intact"),
    ],
)
def test_a_stack_that_was_changed_is_never_intact(changed: dict[str, Any], outcome: str) -> None:
    assert judged(measurement(**changed), CPU).outcome == outcome


def test_a_container_that_went_wrong_is_no_verdict_on_the_guard() -> None:
    assert judged({"error": "no such image"}, CPU).outcome == "broken"


def test_a_refusal_without_its_words_is_a_problem() -> None:
    case = next(case for case in CASES if case.id == "floor")
    silent = Verdict(outcome="refused", said="ERROR: something else")
    assert "says none of" in problem(case, "pip", CPU, silent)
    assert not problem(case, "pip", CPU, Verdict(outcome="refused", said="warpfront guard: no"))


def test_a_refusal_where_the_install_should_work_is_a_problem() -> None:
    case = next(case for case in CASES if case.id == "plain")
    refused = Verdict(outcome="refused", said="warpfront guard: no")
    assert "expected intact" in problem(case, "uv", CPU, refused)


def test_less_protection_is_worse() -> None:
    intact, refused = Verdict(outcome="intact"), Verdict(outcome="refused")
    both = Verdict(outcome="detected", by=("import", "verify"))
    late = Verdict(outcome="detected", by=("verify",))
    silent = Verdict(outcome="silent")
    order = [intact, refused, both, late, silent]
    for better, worse in itertools.pairwise(order):
        assert is_worse(worse, better)
        assert not is_worse(better, worse)
    assert not is_worse(both, both)
    assert not is_worse(Verdict(outcome="broken"), intact)


def test_there_are_enough_cases_and_every_image_and_tool_has_some() -> None:
    assert len(CASES) >= 45
    for image in STACKS:
        assert {tool for _, tool in pairs(CASES, image)} == {"pip-old", "pip", "uv"}


@pytest.mark.parametrize("stack", STACKS.values(), ids=lambda stack: stack.kind)
def test_every_word_of_a_case_can_be_filled_in(stack: Stack) -> None:
    for case in CASES:
        texts = (*case.commands.values(), case.setup, case.probe, *sum(case.says.values(), ()))
        for text in texts:
            stack.fill(text)
    for part in read_parts():
        stack.fill(part.remove)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('expect = "fine"', "no outcome"),
        ('expect = "intact"\nmore = 1', "unknown field more"),
        ('expect = "intact"\non = { gaudi = "refused" }', "neither image, tool"),
    ],
)
def test_a_case_that_makes_no_sense_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "cases.toml"
    path.write_text(f'[[case]]\nid = "a"\ntitle = "a"\nhow = "a"\ninstall = "a"\n{text}\n')
    with pytest.raises(ValueError, match=said):
        read_cases(path)


def unpacked(tmp_path: Path) -> Path:
    """site-packages with a small torch in it, as its wheel has it."""
    import zipfile

    files: dict[str, str | bytes] = {"torch/__init__.py": "a = 1\n", "torch/_C.so": b"\x7fELF"}
    wheel = stand_in_wheel(tmp_path, "torch", "1.0", files=files)
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


def test_the_fingerprint_sees_every_kind_of_change_by_itself(tmp_path: Path) -> None:
    site = unpacked(tmp_path)
    place = str(site)
    hashes, before = recorded(place, ()), fingerprint(place, ())
    assert changes(place, before, hashes, ()) == {}
    (site / "torch" / "__init__.py").write_text("a = 2\n")
    (site / "torch" / "_C.so").unlink()
    (site / "torch" / "more.py").write_text("")
    (site / "nvidia").mkdir()
    (site / "nvidia" / "lib.so").write_bytes(b"")
    assert changes(place, before, hashes, ()) == {
        "torch/__init__.py": "other content",
        "torch/_C.so": "gone",
        "torch/more.py": "new",
        "nvidia/lib.so": "new",
    }
    assert "nvidia/lib.so" not in changes(place, before, hashes, ("nvidia",))


def test_a_file_that_was_written_again_with_its_own_bytes_is_no_change(tmp_path: Path) -> None:
    site = unpacked(tmp_path)
    hashes, before = recorded(str(site), ()), fingerprint(str(site), ())
    (site / "torch" / "__init__.py").write_text("a = 1\n")
    assert changes(str(site), before, hashes, ()) == {}


def test_byte_code_of_another_source_is_a_change_and_of_its_own_is_none(tmp_path: Path) -> None:
    import py_compile

    site = unpacked(tmp_path)
    hashes, before = recorded(str(site), ()), fingerprint(str(site), ())
    tag = sys.implementation.cache_tag
    source, cached = site / "torch/__init__.py", site / f"torch/__pycache__/__init__.{tag}.pyc"
    py_compile.compile(str(source), cfile=str(cached))
    assert changes(str(site), before, hashes, ()) == {}
    other = tmp_path / "other.py"
    other.write_text("a = 9\n")
    py_compile.compile(str(other), cfile=str(cached))
    assert list(changes(str(site), before, hashes, ())) == [f"torch/__pycache__/{cached.name}"]


@pytest.mark.parametrize("stack", STACKS.values(), ids=lambda stack: stack.kind)
def test_what_is_offered_is_on_the_index(stack: Stack, tmp_path: Path) -> None:
    folder = offer(tmp_path, stack)
    page = (folder / "index" / "pypi" / "torch" / "index.html").read_text()
    assert all(f"torch-{version}-" in page for version in (stack.older, stack.public, stack.newer))
    assert f"torch-{stack.torch}-" not in page or "+" not in stack.torch
    for link in page.split('href="')[1:]:
        assert (folder / "index" / link.split('"')[0].lstrip("/").replace("%2B", "+")).is_file()


def result(case: str, image: str, tool: str, outcome: str, *by: str) -> dict[str, Any]:
    run = {"case": case, "image": image, "tool": tool, "day": "2026-11-22", "guard": "0a1b2c"}
    return {**run, "outcome": outcome, "by": list(by)}


def test_new_results_replace_old_ones_of_the_same_run_alone() -> None:
    old = {"results": [result("floor", "cpu", "pip", "silent"), result("floor", "cuda", "uv", "x")]}
    new = [result("floor", "cpu", "pip", "refused")]
    found = document(old, tools={}, images={}, results=new, parts=[])
    outcomes = [(one["image"], one["outcome"]) for one in found["results"]]  # type: ignore[attr-defined]
    assert outcomes == [("cpu", "refused"), ("cuda", "x")]


def test_the_table_says_one_word_where_all_tools_agree_and_each_ones_where_not() -> None:
    results = [result("floor", "cpu", tool, "refused") for tool in ("pip-old", "pip", "uv")]
    results += [
        result("plain", "cpu", "pip", "intact"),
        result("plain", "cpu", "uv", "detected", "import", "verify"),
    ]
    about = {"cpu": {"torch": "2.13.0+cpu", "real": True}}
    tools = {"pip-old": "23.0.1", "pip": "26.3", "uv": "0.13.9"}
    page = {"tools": tools, "images": about, "results": results, "parts": []}
    table = suite_table(page, [case for case in CASES if case.id in ("plain", "floor")])
    assert "| ● torch>= above the image's | refused | - | - |" in table
    assert "pip 26.3: intact; uv: detected by import and verify" in table
    assert "| 0a1b2c | 2026-11-22 | cpu | 5 |" in table
    assert "| cpu: torch 2.13.0+cpu | 5 | 1 | 3 | 1 | 0 | 0 | 0 |" in table
    assert counted([result("floor", "cpu", "pip", "broken")])["silent"] == 1


@pytest.mark.parametrize("image", STACKS)
def test_every_way_and_each_of_its_outcomes_has_a_representative(image: str) -> None:
    of_image = [pair for pair in pairs(CASES, image) if is_offered(*pair)]
    chosen = representatives(CASES, image, read_parts())

    def seen(of: list[tuple[Case, str]]) -> set[tuple[str, ...]]:
        return {
            (alike.get(case.how, case.how), case.expected(image, tool))
            + ((tool,) if case.how in alike else ())
            for case, tool in of
        }

    alike = {way: name for name, ways in ALIKE.items() for way in ways}
    assert seen(chosen) == seen(of_image)
    assert {*alike, *DEAR} <= {case.how for case in CASES}
    assert len(chosen) < len(of_image) / 4
    tools = [tool for _, tool in chosen]
    assert min(tools.count(tool) for tool in NEWEST) > len(chosen) / 3
    tried = {f"{case.id}/{tool}" for case, tool in chosen}
    assert {always_held(part) for part in read_parts() if part.is_of(image)} <= {"", *tried}
    whole = [
        case.id for case, tool in chosen if case.full and case.expected(image, tool) == "intact"
    ]
    assert len(whole) == 1


def test_every_part_of_the_guard_has_a_case_that_the_tests_always_run() -> None:
    for part in read_parts():
        assert part.note or always_held(part), part.id


def test_the_table_marks_what_the_tests_always_run() -> None:
    results = [result(one, "cpu", "pip", "refused") for one in ("exact", "older")]
    about = {"cpu": {"torch": "2.13.0+cpu", "real": True}}
    tools = {"pip-old": "23.0.1", "pip": "26.3", "uv": "0.13.9"}
    page = {"tools": tools, "images": about, "results": results, "parts": []}
    table = suite_table(page, [case for case in CASES if case.id in ("exact", "older")])
    assert "| ● torch== another version | refused" in table
    assert "| torch== an older version | refused" in table


def test_a_page_keeps_its_prose_around_the_table() -> None:
    page = f"# Guard\n\nWhat it is.\n\n{BEGIN}\nold\n{END}\n\nMore.\n"
    assert (
        with_table(page, "new\n") == f"# Guard\n\nWhat it is.\n\n{BEGIN}\n\nnew\n\n{END}\n\nMore.\n"
    )
    with pytest.raises(ValueError, match="lacks"):
        with_table("# Guard\n", "new")


PLAIN = {
    "user": "0",
    **dict.fromkeys(("probe", "full", "ablated", "environment", "unset", "remove")),
}


@pytest.mark.parametrize(
    ("own", "said", "expected"),
    [
        ({}, "", True),
        ({"user": "1000"}, "", False),
        ({"environment": {"PYTHONPATH": "/x"}}, "", False),
        ({"unset": ["PIP_CONSTRAINT"]}, "", False),
        ({"probe": "python3 -S"}, "", False),
        ({"full": True}, "", False),
        ({}, '@probe {"ok": true}', False),
    ],
)
def test_a_case_with_an_import_of_its_own_is_asked_itself(
    own: dict[str, Any], said: str, *, expected: bool
) -> None:
    assert says_nothing_new({**PLAIN, **own}, said) is expected


def test_where_no_overlay_says_what_was_written_every_case_is_asked_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Path, "read_text", lambda _: "1 0 0:1 / / rw - ext4 /dev/vda rw\n")
    assert state(SITE_PACKAGES) is None


def test_what_a_case_left_as_it_was_is_asked_of_the_untouched_image_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And what is wrong with the untouched image is then wrong in each of them."""
    jobs: list[str] = []

    def measured(_: Arena, job: dict[str, Any], image: str) -> dict[str, Any]:
        jobs.append(job["command"])
        whole = {**measurement(exit_code=1, said="warpfront guard: no"), "image": image}
        return (
            {**whole, "verify": FINDINGS} if job["command"] == "true" else {**whole, "same": True}
        )

    monkeypatch.setattr(Arena, "_measured", measured)
    tools = Tools(folder=tmp_path, versions={})
    nothing: Any = None
    arena = Arena(client=nothing, stack=CPU, tools=tools, offered=tmp_path, images={"pip": "image"})
    cases = [case for case in CASES if case.id in ("floor", "no-deps")]
    found = [arena.run(case, "pip").verdict for case in cases]
    assert [one.outcome for one in found] == ["detected", "detected"]
    assert jobs.count("true") == 1


def test_a_part_that_is_taken_out_is_in_the_guard() -> None:
    """`remove` looks for a line of the guard's source before it changes that."""
    guard = Path(__file__).parents[3] / "src" / "warpfront_checks" / "guard"
    looked_for = [
        (part.id, file, pattern or word)
        for part in read_parts()
        for file in re.findall(r"f=/opt/warpfront/lib/warpfront_guard/(\w+\.py)", part.remove)
        for pattern, word in re.findall(r"grep -q (?:'([^']*)'|(\S+)) \$f", part.remove)
    ]
    assert len(looked_for) >= 8
    assert [
        one
        for one in looked_for
        if not any(
            re.search(_python_pattern(one[2]), line)
            for line in (guard / one[1]).read_text().splitlines()
        )
    ] == []
    assert re.search(_python_pattern(r"\[Watcher(), \*foreign\]"), "x = [Watcher(), *foreign]")
    assert not re.search(_python_pattern('("stray", _gone'), '("stray", stray),')


def _python_pattern(basic: str) -> str:
    """Return a basic regular expression as Python's: groups and repetition are plain there."""
    return re.sub(r"(?<!\\)([(){}+?|])", r"\\\1", basic)
