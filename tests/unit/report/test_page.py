"""The page: whole in one file, every state a shape and a word, and nobody's text a tag."""

from __future__ import annotations

import dataclasses
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from builders import a_cell, a_check, a_report_row, a_verification
from releases import Quiet

from warpfront.bench.record_files import bench_document
from warpfront.bench.records import Bench, Measurement
from warpfront.commands.paging import write_page
from warpfront.matrix.cell import Cell
from warpfront.release.tag_contents import TagContents, TagPage
from warpfront.release.tag_contents_of import PAGE
from warpfront.report.history import RUNS_READ, Trend, flips, history_line, read_history
from warpfront.report.page import MOST_LISTED, MOST_TRENDS, STATES, page_html, state_of
from warpfront.report.rows import ReportRow
from warpfront.system.packaged import packaged_text
from warpfront.system.store import Store
from warpfront.system.tree_files import Provenance
from warpfront.verify.results import Outcome

CELL = a_cell(targets=("x86_64",))
EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(1)> \" ' & |"


class Elements(HTMLParser):
    """What a page has: tags with their attributes, and the text of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.found and self.found[-1][0] == "script":
            self.scripts[-1] += data
        self.text += data

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


def a_bench(at: str) -> Bench:
    timed = Measurement(
        id="mm",
        suite="matmul",
        op="mm",
        shape="8",
        dtype="float32",
        direction="forward",
        outcome="passed",
        samples_seconds=((0.1, 0.2, 0.3),),
    )
    return Bench(
        cell_id=CELL.id,
        image_digest="sha256:1",
        content_hash="aa",
        verified="passed",
        target="x86_64",
        at=at,
        tool={},
        environment={},
        settings={},
        results=(timed,),
    )


def page_of(*rows: ReportRow, cell: Cell = CELL) -> Elements:
    cells = [dataclasses.replace(cell, id=row.cell_id) for row in rows]
    pairs = list(zip(cells, rows, strict=True))
    return Elements(page_html(pairs, title="mine", made="today"))


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, "passed"),
        ({"verify": "failed"}, "failed"),
        ({"verify": "error"}, "error"),
        ({"verify": "skipped"}, "skipped"),
        ({"verify": "unavailable"}, "unavailable"),
        ({"verify": "emulated"}, "emulated"),
        ({"verify": "undetermined"}, "undetermined"),
        ({"verify": "-"}, "missing"),
        ({"check_options": "quick"}, "quick"),
        ({"check_options": "quick torch, 2 sessions proven before"}, "quick"),
        ({"check_options": "torch, 2 sessions proven before"}, "passed"),
        ({"build": "blocked", "verify": "-"}, "blocked"),
        ({"build": "failed", "verify": "passed"}, "failed"),
    ],
)
def test_a_state_is_a_shape_and_a_word(changes: dict[str, str], state: str) -> None:
    row = a_report_row(**changes)
    assert state_of(row) == state
    (tile,) = [one for one in page_of(row).named("button") if "data-entry" in one]
    assert tile["aria-label"] == f"torch on x86_64: {state}"
    assert state in (tile["class"] or "")
    assert len(set(STATES.values())) == len(STATES)


def test_nobodys_text_is_markup() -> None:
    row = a_report_row(verify="failed", reason=EVIL, target=EVIL, cell_id=EVIL)
    page = page_of(row, cell=dataclasses.replace(CELL, vendor=EVIL, image=EVIL, torch=EVIL))
    assert page.named("img") == []
    assert len(page.named("script")) == 2
    assert not [name for _, attributes in page.found for name in attributes if name[:2] == "on"]
    (entry,) = json.loads(page.scripts[0])
    assert entry["facts"]["why"] == EVIL
    assert EVIL in page.text


def test_the_page_asks_nobody_for_anything() -> None:
    page = page_of(a_report_row())
    asked = [
        value
        for _, attributes in page.found
        for name, value in attributes.items()
        if name in {"src", "href", "action", "srcset", "data"}
    ]
    assert asked == []
    (policy,) = [one["content"] for one in page.named("meta") if "http-equiv" in one]
    assert (policy or "").startswith("default-src 'none'")
    files = "".join(packaged_text("page", name) for name in ("page.css", "page.js"))
    assert not re.search(r"https?:|url\(|@import|fetch\(|innerHTML", files)


def test_what_is_no_pass_is_written_out_worst_first_with_how_to_repeat_it() -> None:
    rows = [
        a_report_row(cell_id="b", verify="unavailable", reason="no gpu"),
        a_report_row(
            cell_id="a", verify="failed", reason="0.1 off", repeat="warpfront verify --only a"
        ),
        a_report_row(cell_id="c"),
    ]
    text = page_of(*rows).text
    assert "What is not a pass (2)" in text
    assert text.index("0.1 off") < text.index("no gpu")  # also in the summary above it
    assert "warpfront verify" in text
    many = [
        a_report_row(cell_id=f"c{number}", verify="failed") for number in range(MOST_LISTED + 5)
    ]
    assert "and 5 more, in the grid" in page_of(*many).text


def test_each_row_that_is_no_pass_has_a_reason_and_a_quick_one_is_no_whole_one() -> None:
    rows = [
        a_report_row(cell_id="a", build="-", verify="-", lock="stale", reason="no index answers"),
        a_report_row(cell_id="b", build="-", verify="-"),
        a_report_row(cell_id="c", build="-", verify="-", lock="torch changed"),
        a_report_row(cell_id="d", build="reused", verify="-"),
        a_report_row(cell_id="e", check_options="quick"),
    ]
    page = page_of(*rows)
    facts = [entry["facts"] for entry in json.loads(page.scripts[0])]
    assert [one["why"] for one in facts] == [
        "no index answers",
        "never built; its lock is fresh",
        "never built; its lock: torch changed",
        "reused, and never verified with this content",
        "",
    ]
    assert "What is not a pass (4)" in page.text
    assert all(str(one["why"]) in page.text for one in facts)
    assert "◐ 1 quick" in page.text


def test_the_first_screen_has_what_is_proven_stuck_and_changed() -> None:
    rows = [
        a_report_row(cell_id="a", verify="unavailable", reason="no gpu"),
        a_report_row(cell_id="b", verify="unavailable", reason="no gpu"),
        a_report_row(cell_id="c"),
        a_report_row(cell_id="d", check_options="quick"),
    ]
    before = [(row, "passed") for row in rows[:3]]
    runs, _ = read_history(history_line(before, made="monday", revision="abc"))
    pairs = [(dataclasses.replace(CELL, id=row.cell_id), row) for row in rows]
    first = Elements(page_html(pairs, title="", made="", past=runs)).text
    first = " ".join(first.partition("Find")[0].split())
    assert "Nothing is published." in first
    assert "Passed a whole verification: cpu: 1 of 4" in first
    assert "Stuck (2) 2 x no gpu" in first
    assert "Changed since monday (2)" in first
    assert "a on x86_64: ✓ passed, now ◇ unavailable" in first
    assert "1 new" in first
    assert "c on" not in first.partition("Changed")[2]


def test_without_an_earlier_run_what_changed_is_not_determined() -> None:
    assert "Not determined: no earlier run is on record." in page_of(a_report_row()).text


def test_history_is_one_line_a_run_and_a_broken_line_is_counted() -> None:
    row = a_report_row()
    line = history_line([(row, "passed")], made="monday", revision="abc")
    assert line.count("\n") == 1
    runs, unread = read_history(line + '{"half": \n[]\n{"schema":2}\n' + line)
    assert unread == 3
    key = (row.cell_id, row.target)
    assert [(key, run.by_place[key].state) for run in runs] == [(key, "passed")] * 2
    assert len(read_history(line * (RUNS_READ + 7))[0]) == RUNS_READ


def test_a_check_that_flips_on_one_digest_is_named_in_the_history() -> None:
    row = a_report_row()
    key = (row.cell_id, row.target)

    def line(digest: str, outcome: str) -> str:
        check = a_check(Outcome(outcome), session="numerics", name="mlp")
        found = a_verification(check, content_hash=digest)
        return history_line([(row, "?")], made="monday", revision="abc", verifications={key: found})

    before = history_line([(row, "passed")], made="sunday", revision="abc")
    steady = line("aa", "passed") + line("bb", "failed")
    runs, unread = read_history(before + steady)
    assert (unread, flips(runs, key)) == (0, ())
    runs, _ = read_history(steady + line("bb", "passed") + line("bb", "failed"))
    assert flips(runs, key) == ("numerics: mlp flips on bb (2 of 3 runs)",)
    pairs = [(dataclasses.replace(CELL, id=row.cell_id), row)]
    assert "mlp flips on bb" in page_html(pairs, title="", made="", past=runs)


def a_trend(**changes: object) -> Trend:
    usual = Trend(
        cell_id=CELL.id,
        target="x86_64",
        name="mm/512",
        place=f"{CELL.id} x86_64",
        at=("monday", "tuesday", "wednesday"),
        times=(1.0, 1.0, 1.2),
        change=2,
        said="1.200 times its time since wednesday",
    )
    return dataclasses.replace(usual, **changes)  # type: ignore[arg-type]


def test_times_over_nights_are_drawn_and_said_and_stand_with_their_cell() -> None:
    row = a_report_row(cell_id=CELL.id)
    steady = a_trend(name=EVIL, change=None, said="as usual")
    text = page_html([(CELL, row)], title="", made="", trends=[a_trend(), steady])
    page = Elements(text)
    first, second = page.named("svg")
    assert first["aria-label"] == f"mm/512, {CELL.id} x86_64: 1.200 times its time since wednesday"
    assert EVIL in (second["aria-label"] or "")
    assert [one["class"] for one in page.named("line")].count("change") == 1
    assert len(page.named("polyline")) == 2
    (entry,) = json.loads(page.scripts[0])
    assert entry["facts"]["speed"] == "mm/512: 1.200 times its time since wednesday"
    assert "wednesday: 1.200" in page.text
    many = [a_trend()] * (MOST_TRENDS + 3)
    text = page_html([(CELL, row)], title="", made="", trends=many)
    assert "and 3 more" in text
    assert len(Elements(text).named("svg")) == MOST_TRENDS
    assert "Speed over nights" not in page_of(row).text


class Heard:
    """A watch that keeps what it is told."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def advance(self, what: str, done_bytes: int, total_bytes: int) -> None: ...

    def step(self, cell_id: str, text: str) -> None: ...

    def line(self, cell_id: str, text: str) -> None: ...


def test_a_page_shows_the_runs_before_it_and_adds_its_own(tmp_path: Path) -> None:
    history, page, watch = tmp_path / "runs.jsonl", tmp_path / "out" / "index.html", Heard()
    nights = tmp_path / "nights.jsonl"
    store = Store(tmp_path / "build")
    log = store.log_path(CELL.id)
    log.parent.mkdir(parents=True)
    log.write_text("x")

    def write(made: str, verify: str) -> str:
        rows = [a_report_row(verify=verify)]
        provenance = Provenance(created=made, revision="0123456789abcdef")
        cells = {CELL.id: CELL}
        write_page(
            page,
            rows,
            cells,
            store,
            provenance=provenance,
            history=history,
            nights=nights,
            watch=watch,
        )
        return page.read_text()

    assert "monday" not in write("sunday", "passed").replace("sunday", "")
    text = write("monday", "failed")
    (entry,) = json.loads(Elements(text).scripts[0])
    assert entry["facts"]["before"] == "sunday ✓ passed"
    assert entry["link"] == f"../build/{CELL.id}/build.log"
    assert "0123456789ab, monday" in text
    assert len(history.read_text().splitlines()) == 2
    night = bench_document(a_bench(at="2026-11-01"))
    (store.cell_folder(CELL.id) / "bench-x86_64.json").write_text(json.dumps(night))
    assert "Speed over nights" not in write("monday", "passed")
    night["at"] = "2026-11-02"
    (store.cell_folder(CELL.id) / "bench-x86_64.json").write_text(json.dumps(night))
    assert "2 nights" in write("monday", "passed")
    assert "2 nights" in write("monday", "passed")
    assert len(nights.read_text().splitlines()) == 2
    (store.cell_folder(CELL.id) / "bench-x86_64.json").write_text('{"kind": "Bench"}')
    assert "2 nights" in write("monday", "passed")
    assert any("bench-x86_64.json: schema None" in said for said in watch.said)
    history.write_text("nonsense\n")
    write("tuesday", "passed")
    assert any("1 lines are no runs" in said for said in watch.said)


def test_published_tags_are_shown_with_what_changed_and_nobodys_text_is_a_tag(
    tmp_path: Path,
) -> None:
    before = TagContents(
        reference="r.test/a:1", digest="sha256:1", wheels={"torch": "1"}, folders={"/usr": 1000}
    )
    now = TagContents(
        reference="r.test/a:2",
        digest="sha256:2",
        wheels={"torch": "2", EVIL: EVIL},
        folders={"/usr": 5000},
        unread=(EVIL,),
    )
    store = Store(tmp_path / "build")
    store.save(CELL.id, PAGE, TagPage(tags=("2", "latest"), now=now, before=before))
    row = a_report_row(cell_id=CELL.id)
    file = tmp_path / "page.html"
    provenance = Provenance(created="2026-11-26T00:00:00+00:00", revision="")
    write_page(
        file, [row], {CELL.id: CELL}, store, provenance=provenance, history=None, watch=Quiet()
    )
    text = file.read_text("utf-8")
    found = Elements(text)
    assert "Published tags (1)" in found.text
    assert "changed: 2 wheels, 0 Debian packages, 1 folder" in found.text
    assert "Not determined:" in found.text
    assert not found.named("img")
    assert len(found.named("script")) == 2
    store.save(CELL.id, PAGE, TagPage(tags=("1",), now=before, before=None))
    write_page(
        file, [row], {CELL.id: CELL}, store, provenance=provenance, history=None, watch=Quiet()
    )
    assert "the first of its tag" in file.read_text("utf-8")
