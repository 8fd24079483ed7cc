"""Each command that a page shows is run, or parsed with a reason why it is not run.

CONTRIBUTING.md has recipes, which tests/meta/test_recipes.py follows.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from consoles import (
    OTHERS,
    PAGES,
    REASONS,
    ROOT,
    SHELL,
    ConsoleError,
    Line,
    parse,
    parse_in_prose,
    perform,
    read_lines,
    read_prose,
)

NAMES = [str(page.relative_to(ROOT)) for page in PAGES]


def lines_of(name: str) -> list[Line]:
    return list(read_lines(name, (ROOT / name).read_text(encoding="utf-8")))


EVERY = [line for name in NAMES for line in lines_of(name)]


@pytest.mark.parametrize("name", NAMES)
def test_every_command_of_ours_that_a_page_shows_is_one(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    shown = [parse(line, monkeypatch, capsys) for line in lines_of(name) if line.is_ours]
    named = [parse_in_prose(line, monkeypatch, capsys) for line in read_prose(name, text)]
    assert [wrong for wrong in (*shown, *named) if wrong] == []


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with the matrix and images of this repository, beside an application."""
    place = tmp_path_factory.mktemp("consoles")
    project = place / "project"
    project.mkdir()
    shutil.copy(ROOT / "matrix.yaml", project)
    shutil.copytree(ROOT / "images", project / "images")
    for name in ("app", "libSGM", "mine", "minGPT/mingpt", "minGPT/projects"):
        (place / name).mkdir(parents=True)
        (place / name / "train.py").write_text("import torch\ntorch.ones(2, device='cuda')\n")
        (place / name / "requirements.txt").write_text("numpy\n")
    return place


# Page -> why its lines are parsed and not run.
PARSED_ONLY = {
    "docs/ci.md": "tests/integration/test_ci_page.py follows it, with git",
    "docs/commands.md": "it is made from the program; its examples name files of nobody",
}
RUN = sorted({one.page for one in EVERY if one.is_ours and not one.reason} - PARSED_ONLY.keys())


@pytest.mark.process
@pytest.mark.parametrize("name", RUN)
def test_what_can_run_here_runs_and_prints_what_the_page_shows(
    name: str,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = lines_of(name)
    folder = place / "project"
    if any(line.words[:2] == ("warpfront", "init") for line in lines):
        folder = place / f"empty-{Path(name).stem}"
        folder.mkdir()
        (folder / "warpfront").symlink_to(ROOT)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{place}/nowhere")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "cache"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("COLUMNS", "120")
    for line in lines:
        if not line.reason:
            folder = perform(line, folder, capsys)


def test_every_other_program_has_a_reason() -> None:
    known = {*OTHERS, *SHELL}
    assert [str(x) for x in EVERY if not x.is_ours and x.words[0] not in known] == []


def test_no_reason_is_left_over() -> None:
    used = {" ".join(line.words[1 : 1 + n]) for line in EVERY if line.is_ours for n in (1, 2)}
    assert sorted(REASONS.keys() - used) == []
    assert sorted(OTHERS.keys() - {line.words[0] for line in EVERY}) == []


def line(text: str, kind: str = "console") -> Line:
    (found,) = read_lines("page.md", f"```{kind}\n{text}\n```\n")
    return found


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("$ warpfront plan --targte sm_90", "--targte"),
        ("$ warpfront plann", "plann"),
        ("$ warpfront port nosuch ../app", "nosuch"),
        ("$ warpfront why", "missing"),
        ("$ warpfront port scan ../app --compiler hots", "host"),
        ("$ warpfront scan ../app", "port scan"),
        ("$ warpfront engine --status", "engine status"),
    ],
)
def test_a_wrong_command_is_found(
    typed: str,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert message in parse(line(typed), monkeypatch, capsys)


def test_a_command_in_a_sentence_may_leave_out_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "`warpfront why`, `warpfront verify\n--digest` and `warpfront port` but `warpfront wy`"
    wrong = [parse_in_prose(one, monkeypatch, capsys) for one in read_prose("page.md", said)]
    assert [bool(one) for one in wrong] == [False, False, False, True]
    assert "page.md:2" in wrong[-1]


def test_output_that_does_not_come_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert perform(line("$ warpfront docs support\n# Versions ..."), tmp_path, capsys) == tmp_path
    with pytest.raises(ConsoleError, match="does not print '# Other'"):
        perform(line("$ warpfront docs support\n# Other"), tmp_path, capsys)
    with pytest.raises(ConsoleError, match="exit code 13"):
        perform(line("$ warpfront plan"), tmp_path, capsys)


def test_a_block_is_read_as_a_shell_reads_it() -> None:
    text = "$ mkdir a && cd a  # a comment\n$ A=b warpfront plan \\\n    --json\nout\n"
    text += "$ cat b | warpfront c > d\n"
    first, second, third, _, last = read_lines("page.md", f"\n```console\n{text}```\n")
    assert (first.words, first.number) == (("mkdir", "a"), 3)
    assert second.words == ("cd", "a")
    assert third == Line("page.md", 4, ("warpfront", "plan", "--json"), ("out",))
    assert last.words == ("warpfront", "c")
