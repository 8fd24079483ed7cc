"""Sessions side by side: what one of them does costs the others nothing."""

from __future__ import annotations

import json
import os
import pickle
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from warpfront.cli import sessions
from warpfront_checks import children
from warpfront_checks import parallel_sessions as side_by_side
from warpfront_checks.check_options import SESSIONS, CheckOptions
from warpfront_checks.children import CRASHED, DONE, Begun, Returned
from warpfront_checks.parallel_sessions import ENDINGS, places, progress, run_side_by_side
from warpfront_checks.results import failed


def test_each_session_ends_by_itself_and_load_begins_before_torch(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    imported: list[str] = []

    def run(name: str) -> int:
        (tmp_path / name).write_text(f"{os.getpid()} {' '.join(imported)}")
        if name == "opinfo":
            os.kill(os.getpid(), signal.SIGKILL)
        if name == "models":
            raise ValueError("a check that nobody catches")
        return int(name == "golden")

    def import_module(name: str) -> None:
        imported.append(name)
        if name == "torch._dynamo":
            raise ImportError(name)

    codes = run_side_by_side(
        SESSIONS, run, (), device="cpu", results=tmp_path, import_module=import_module
    )
    wrong = {"opinfo": -signal.SIGKILL, "models": 1, "golden": 1}
    assert codes == {**dict.fromkeys(SESSIONS, 0), **wrong}
    told = {name: (tmp_path / name).read_text().split() for name in SESSIONS}
    assert len({words[0] for words in told.values()} | {str(os.getpid())}) == len(SESSIONS) + 1
    assert told["load"][1:] == []
    assert all(words[1:] == ["torch", "torch._dynamo"] for n, words in told.items() if n != "load")
    said = capfd.readouterr()
    assert "a check that nobody catches" in said.err
    assert "opinfo: ended with -9 after" in said.out


def test_the_compiler_of_a_gpu_is_imported_once_and_the_rest_began_before(tmp_path: Path) -> None:
    imported: list[str] = []

    def run(name: str) -> int:
        (tmp_path / name).write_text(" ".join(imported))
        return 0

    run_side_by_side(
        SESSIONS, run, (), device="cuda", results=tmp_path, import_module=imported.append
    )

    knew = {name: "torch._inductor.utils" in (tmp_path / name).read_text() for name in SESSIONS}
    assert [name for name, compiler in knew.items() if not compiler] == [
        "load",
        "numerics",
        "operators",
        "golden",
        "devices",
    ]
    assert sorted(set(imported)) == ["torch", "torch._dynamo", "torch._inductor.utils"]


def test_counts_are_of_what_ended_was_made_and_was_planned(tmp_path: Path) -> None:
    made = {"planned": ["a", "b", "c"], "checks": [{}, {}]}
    (tmp_path / "opinfo.json").write_text(json.dumps(made))
    (tmp_path / "load.json").write_text(json.dumps({"planned": ["a"], "checks": [{}]}))
    (tmp_path / "models.json").write_text("{")

    said = progress(tmp_path, ("load", "opinfo", "models", "golden"), ("load",), ("opinfo",))

    assert said == "progress: 1/4 sessions ended, 3/4 checks made; opinfo"


def test_counts_are_printed_while_sessions_run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(side_by_side, "_PROGRESS_SECONDS", 0.01)
    handler = signal.getsignal(signal.SIGALRM)
    signal.setitimer(signal.ITIMER_REAL, 600)

    def run(_name: str) -> int:
        # A fork inherits no timer; the parent counts until this one may end.
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
        while not (tmp_path / "printed").exists():
            os.sched_yield()
        return 0

    def counted(*_: object) -> str:
        (tmp_path / "printed").touch()
        return "progress: counted"

    monkeypatch.setattr(side_by_side, "progress", counted)
    codes = run_side_by_side(
        ("golden",), run, (), device="cpu", results=tmp_path, import_module=lambda _name: None
    )
    assert codes == {"golden": 0}
    assert "progress: counted\n" in capfd.readouterr().out
    assert signal.getsignal(signal.SIGALRM) == handler
    assert signal.getitimer(signal.ITIMER_REAL)[0] > 500, "the timer of others runs on"


def test_what_runs_other_peoples_code_begins_when_all_others_have_ended(tmp_path: Path) -> None:
    def run(name: str) -> int:
        (tmp_path / name).write_text(" ".join(one.name for one in tmp_path.iterdir()))
        return 0

    asked = ("stack", *SESSIONS)
    codes = run_side_by_side(
        asked, run, (), device="cpu", results=tmp_path, import_module=lambda _: None
    )
    assert codes == dict.fromkeys(asked, 0)
    assert {"stack", *SESSIONS} == {*(tmp_path / "stack").read_text().split(), "stack"}


def test_who_cannot_use_the_parents_driver_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda _, argv: begun.append(argv))
    side_by_side._begin_anew("models", ("--quick",))
    assert begun[0][1:] == ["-m", "warpfront_checks", "models", "--quick"]
    for poisoned in (True, False):
        torch = type(
            "torch", (), {"cuda": type("cuda", (), {"_is_in_bad_fork": lambda p=poisoned: p})}
        )
        assert side_by_side._unusable(torch) is poisoned
    assert not side_by_side._unusable(object())


def test_a_driver_that_any_import_opened_is_the_parents(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    device = tmp_path / "kfd"
    device.touch()
    monkeypatch.setattr(side_by_side, "_DRIVERS", (str(device),))
    assert not side_by_side._unusable(object())
    with device.open():
        assert side_by_side._unusable(object())


def test_places_are_cores_that_memory_holds_and_few_on_one_device() -> None:
    gib = 2**30
    assert [places(2, 23 * gib, "cpu"), places(16, 8 * gib, "cpu"), places(16, 1, "cpu")] == [
        2,
        4,
        1,
    ]
    assert [places(16, 128 * gib, "cuda"), places(2, 128 * gib, "cuda")] == [6, 2]
    assert places(16, 128 * gib, "hpu") == 1, "a card belongs to one process"


@pytest.mark.parametrize(("device", "threads"), [("cpu", {16, 8}), ("cuda", {8})])
def test_all_cores_are_for_threads_where_the_cpu_is_what_is_judged(
    device: str, threads: set[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, int] = {}

    def fork(name: str, _run: object, _alone: object, count: int, **_how: object) -> int:
        given[name] = count
        return os.posix_spawn("/bin/true", ["true"], {})

    monkeypatch.setattr(side_by_side, "_fork", fork)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(16))
    monkeypatch.setattr(side_by_side, "places", lambda *_: 2)
    names = ("operators", "models")
    run_side_by_side(
        names, lambda _: 0, (), device=device, results=tmp_path, import_module=lambda _: None
    )
    assert set(given.values()) == threads


def test_lanes_take_the_next_item_and_each_answer_is_that_of_its_item(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow, took = threading.Event(), dict[str, list[int]]()

    def in_a_child(
        _module: str, items: list[str], places: Iterator[int], **_how: object
    ) -> Iterator[Returned]:
        mine = took.setdefault(threading.current_thread().name, [])
        for place in places:
            mine.append(place)
            if place == 0:
                assert slow.wait(10)
            if place == 6:
                slow.set()
                raise OSError("no more processes")
            yield Returned(item=items[place], place=place, outcome=DONE, seconds=0.0, document={})

    monkeypatch.setattr(children, "each_in_a_child", in_a_child)
    begun = children.begin_beside("module", list("abcdefg"), lanes=2, seconds=1.0)
    answers = begun.answers
    assert [answer.result(10).item for answer in answers[:6]] == list("abcdef")
    with pytest.raises(OSError, match="no more processes"):
        answers[6].result(10)
    assert sorted(took.values()) == [[0], [1, 2, 3, 4, 5, 6]], "one waits, the other goes on"


@pytest.mark.parametrize(
    "line",
    [b"[" * 5000, b"{}", b"[]", b"\xff", b'{"other": 0}', b'{"document": []}', b"x" * 99],
)
def test_what_a_library_writes_among_the_answers_costs_the_item_only(
    line: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "_LONGEST_BYTES", 50 if b"xx" in line else 10_000)

    def begin(job: Path, _: object) -> Any:
        with (job.parent / "answers").open("wb", buffering=0) as answers:
            answers.write(b'{"document": {"a": 1}}\n' + line + (b"" if b"xx" in line else b"\n"))
        nobody = 1 << 22  # the largest process id and one
        return SimpleNamespace(pid=nobody, poll=lambda: None, wait=lambda: 0)

    job = {"work": "module:work", "items": ["one", "two", "three"], "yields": 0}
    child = children._ChildAtWork(begin, job)
    first, second = (child.answer(place, 5.0) for place in range(2))
    child.end()
    assert child.is_through
    assert (first.outcome, first.document) == (DONE, {"a": 1})
    assert (second.item, second.outcome) == ("two", CRASHED)
    assert second.reason == "what it answered cannot be read"


def test_a_session_without_an_ending_is_run_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ENDINGS).write_text('{"golden": 0}')  # of a run before
    asked: list[tuple[str, ...]] = []

    def run(checks: sessions._Checks, *names: str) -> str:
        asked.append(names)
        if len(names) > 1:
            (checks.results / ENDINGS).write_text(json.dumps({"load": 0, "numerics": 1}))
        return "it hung"

    monkeypatch.setattr(sessions._Checks, "run", run)
    names = ("load", "numerics", "golden")
    ended = sessions._Checks(None, tmp_path, tmp_path, CheckOptions()).together(names)  # type: ignore[arg-type]
    assert ended == {"load": "", "numerics": "Returned code 1", "golden": "it hung"}
    assert asked == [names, ("golden",)]


def test_a_check_found_out_beside_is_its_childs_answer_or_how_the_child_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def begin(module: str, items: list[dict[str, Any]], **how: object) -> Begun:
        assert (module, how["lanes"]) == (children.CHILD, 2)
        answers: list[Future[Returned]] = [Future() for _ in items]
        done = {"outcome": "failed", "reason": "wrong", "details": {"answers": 3}}
        for answer, (item, how_it_went) in zip(
            answers, zip(items, (DONE, CRASHED), strict=True), strict=True
        ):
            document = done if how_it_went == DONE else {}
            answer.set_result(
                Returned(
                    item=item,
                    place=0,
                    outcome=how_it_went,
                    seconds=1,
                    document=document,
                    reason="SIGSEGV",
                )
            )
        return Begun(answers)

    monkeypatch.setattr(children, "begin_beside", begin)
    asked = {"first": {"name": "a"}, "second": {"name": "b"}}
    checks = children.begin_checks("module:find", asked, CheckOptions(seeds=(7,)), lanes=2)
    found = [find() for find in checks.values()]
    assert [*checks] == ["first", "second"]
    assert found[0] == failed("wrong", answers=3)
    assert (found[1].outcome, found[1].reason) == ("error", "crashed: SIGSEGV")


def test_a_child_finds_out_with_the_effort_that_was_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    effort = CheckOptions(quick=True, seeds=(7, 8), run="x")
    sent = pickle.loads(pickle.dumps(("check_options:tried", {}, effort)))
    monkeypatch.setattr(
        "warpfront_checks.check_options.tried",
        lambda *, effort: failed(repr(effort)),
        raising=False,
    )
    assert children.find_out(sent)["reason"] == repr(effort)


def test_only_a_device_for_several_processes_has_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, gib, lanes in ((32, 80, 5), (16, 80, 5), (9, 80, 4), (16, 15, 3), (3, 80, 0)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, n=cores: range(n))
        monkeypatch.setattr(children, "memory_of_gpu", lambda n=gib: n << 30)
        assert [children.lanes_for(d) for d in ("cuda", "cpu", "hpu")] == [lanes, 0, 0]


def test_without_lanes_a_check_is_found_out_where_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    effort = CheckOptions(seeds=(7,))
    monkeypatch.setattr(
        "warpfront_checks.check_options.tried",
        lambda *, name, effort: failed(f"{name} {effort.seeds}"),
        raising=False,
    )
    asked = {"first": {"name": "a"}, "second": {"name": "b"}}
    checks = children.begin_checks("check_options:tried", asked, effort, lanes=0)
    assert [*checks] == ["first", "second"]
    found = [find() for find in checks.values()]
    assert [each.reason for each in found] == ["a (7,)", "b (7,)"]
