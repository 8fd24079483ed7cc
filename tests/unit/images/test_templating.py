"""Templates run in a child with limits: what breaks one is named, and the others are rendered."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from builders import a_cell, a_lock

from warpfront.errors import BlockedError, CommandFailedError, RenderError
from warpfront.images import template_process
from warpfront.images.render import context_parts
from warpfront.images.template_process import Rendered, RenderRequest, render_templates
from warpfront.images.templating import LONGEST_TEXT
from warpfront.system import process
from warpfront.system.digests import frozen
from warpfront.system.process import Command, Completed
from warpfront.system.tree_files import ImageFile, Unreadable

BRIEF = 1
GOOD = "FROM {{ cell.base.pinned }}\n{% for one in wheels %}{{ one.name }}\n{% endfor %}"
LOOPS = "{% for a in range(99999) %}" * 3 + "{% endfor %}" * 3
MACRO = (
    "{% macro twice(n) %}{% if n %}{{ twice(n - 1) }}{{ twice(n - 1) }}{% endif %}{% endmacro %}"
    "{{ twice(60) }}"
)
RECURSIVE = (
    "{% for n in [[1, 2]] recursive %}{% if loop.depth < 40 %}{{ loop([n, n]) }}{% endif %}"
    "{% endfor %}"
)
TIME = "it takes more than 1 s"
MEMORY = "it takes more than 512 MiB of memory"
BOMBS = {
    "loops": (LOOPS, TIME),
    "macro": (MACRO, TIME),
    "recursive": (RECURSIVE, TIME),
    "format": ('{{ "%999999999d"|format(1) }}', MEMORY),
    "slice": ("{{ [1]|slice(10**8)|list }}", "takes more than"),
    "text": ('{{ "a" * 10**9 }}', MEMORY),
    "power": ("{{ 9 ** (9 ** 9) }}", "takes more than"),
    "center": ("{{ 'a'|center(10**10) }}", MEMORY),
    "lipsum": ("{{ lipsum(100000) }}", "takes more than"),
    "range": ("{{ range(10**9)|list }}", "Range too big"),
    "output": ("{% for a in range(30000) %}" + "a" * 99 + "{% endfor %}", "more than 1,048,576"),
    "itself": ("{% include 'itself/Dockerfile.j2' %}" * 2, "RecursionError"),
    "brackets": ("{{ " + "(" * 9999 + "1" + ")" * 9999 + " }}", "RecursionError"),
    "blocks": ("{% for a in [1] %}" * 99 + "{% endfor %}" * 99, "too many"),
    "minus": ("{{ " + "-" * 200_000 + "1 }}", "RecursionError"),
}


def sources(texts: Mapping[str, str]) -> dict[str, ImageFile | Unreadable]:
    return {f"{name}/Dockerfile.j2": ImageFile(content=one.encode()) for name, one in texts.items()}


def variables() -> Mapping[str, object]:
    cell = a_cell(environment=frozen({"A": "1"}))
    return context_parts(cell, a_lock(cell)).variables


def asked(*folders: str) -> list[RenderRequest]:
    known = variables()
    return [
        RenderRequest(folder=one, variables=known, label=f" (cell {at})")
        for at, one in enumerate(folders)
    ]


def message(found: Rendered) -> str:
    assert isinstance(found, RenderError | BlockedError)
    return found.message


# Each breaks a limit that one of the others breaks too, in as many seconds of the processor; the
# loops, that of the next test.
ALIKE = {"loops", "macro", "recursive", "slice", "text", "center", "lipsum"}


@pytest.mark.process
@pytest.mark.parametrize(
    "name",
    [pytest.param(one, marks=[pytest.mark.exhaustive] if one in ALIKE else []) for one in BOMBS],
)
def test_a_template_that_breaks_a_limit_alone_is_refused(name: str) -> None:
    text, why = BOMBS[name]
    found = render_templates(
        sources({name: text, "good": GOOD}), asked("good", name, "good"), BRIEF
    )
    assert found[0] == found[2] == f"FROM {a_cell().base.pinned}\ntorch\npip\n"
    assert message(found[1]).startswith(f"images/{name}/Dockerfile.j2")
    assert why in message(found[1])


@pytest.mark.process
def test_what_broke_a_limit_is_not_rendered_for_the_next_cell() -> None:
    found = render_templates(
        sources({"bad": LOOPS, "good": "x"}), asked("bad", "bad", "good"), BRIEF
    )
    assert message(found[0]) == f"images/bad/Dockerfile.j2: {TIME} (cell 0)"
    assert message(found[1]) == f"images/bad/Dockerfile.j2: {TIME} for another cell (cell 1)"
    assert found[2] == "x"


@pytest.mark.process
def test_all_cells_of_a_run_share_one_child(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Command] = []

    def counted(command: Command) -> Completed:
        started.append(command)
        return process.run(command)

    monkeypatch.setattr(template_process, "run", counted)
    texts = {"good": "{{ cell.id }}", "unknown": "{{ nothing }}", "broken": "{% if %}"}
    found = render_templates(sources(texts), asked("good", "unknown", "broken", "none", "good"))
    assert found[0] == found[4] == a_cell().id
    assert [message(one) for one in found[1:4]] == [
        "images/unknown/Dockerfile.j2: 'nothing' is undefined (cell 1)",
        "images/broken/Dockerfile.j2:1: Expected an expression, got 'end of statement block'",
        "images/none/Dockerfile.j2: no such template",
    ]
    assert len(started) == 1


@pytest.mark.process
def test_what_is_no_template_blocks_its_cells() -> None:
    files = sources({"good": "x", "large": "a" * (LONGEST_TEXT + 1)}) | {
        "link/Dockerfile.j2": ImageFile(link="other"),
        "refused/Dockerfile.j2": Unreadable(reason="a pipe"),
        "binary/Dockerfile.j2": ImageFile(content=b"\xff"),
    }
    found = render_templates(files, asked("large", "link", "refused", "binary", "good"))
    assert all(isinstance(one, BlockedError) for one in found[:4])
    assert "a pipe" in message(found[2])
    assert found[4] == "x"


@pytest.mark.process
def test_the_folder_that_a_run_starts_in_is_no_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jinja2.py").write_text("raise SystemExit(9)\n")
    monkeypatch.chdir(tmp_path)
    assert render_templates(sources({"good": "x"}), asked("good")) == ["x"]


def test_a_child_that_does_not_start_is_no_fault_of_a_template(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(command: Command) -> Completed:
        return Completed(command=command, returncode=1, stdout="", stderr="No module named x")

    monkeypatch.setattr(template_process, "run", fails)
    with pytest.raises(CommandFailedError, match="No module named x"):
        render_templates(sources({"good": "x"}), asked("good"))


def test_nothing_is_started_where_nothing_is_rendered() -> None:
    assert render_templates({}, []) == []
