"""What docs list and count is what the program has: `--update-golden` writes the counts anew, the
lists are written by people.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import io
import json
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from builders import a_cell, a_lock
from packaging.requirements import Requirement

from warpfront import errors
from warpfront.cli.loading import MODULES, declared_in, installed_modules
from warpfront.cli.program import run
from warpfront.cli.tasks.declaring import COMMON, Command
from warpfront.cli.tasks.project import pages
from warpfront.errors import WarpfrontError
from warpfront.images import render
from warpfront.images.engine.docker import LONGEST_LINE
from warpfront.images.engine.protocol import DEAD_MAN_SECONDS
from warpfront.matrix import language
from warpfront.matrix.compat import packaged
from warpfront.matrix.reading import read_matrix
from warpfront.matrix.vendors import VENDORS
from warpfront.system import digests, foreign, trees
from warpfront.verify import containers
from warpfront.wheels.store.sdists import toolbox_wheels
from warpfront_port.preflight import findings

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "warpfront"
CHECKS = ROOT / "src" / "warpfront_checks"
EVIDENCE = [ROOT / f"docs/results/{name}.md" for name in ("attacks", "ci-tests", "tries")]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/*.md", "docs/guides/*.md", "images/*.md")
    for path in ROOT.glob(pattern)
)
PAGES += EVIDENCE
PICTURES_BYTES = 150_000
MIB = 1 << 20


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def count_operations() -> int:
    from warpfront_checks.cases.catalogue import CATALOGUE

    return len(CATALOGUE)


def count_families() -> int:
    """Read, not imported: the module needs torch."""
    tree = ast.parse((CHECKS / "models" / "families.py").read_text())
    assigned = (node for node in tree.body if isinstance(node, ast.Assign))
    values = {ast.unparse(node.targets[0]): node.value for node in assigned}
    assert isinstance(values["FAMILIES"], ast.Tuple)
    return len(values["FAMILIES"].elts)


def count_guard_files() -> int:
    return len(list((CHECKS / "guard").glob("*.py")))


def count_guard_runs() -> int:
    return len(json.loads(text_of("docs/results/guard-suite.json"))["results"])


# Page, the words around a number, and what the number is.
COUNTS: tuple[tuple[str, str, Callable[[], int]], ...] = (
    ("README.md", r"\| a catalogue of ([\d,]+) operations by name", count_operations),
    ("README.md", r" ([\d,]+) families of models", count_families),
    ("docs/guard.md", r"The guard is ([\d,]+) files", count_guard_files),
    ("docs/guard.md", r"of the ([\d,]+) runs", count_guard_runs),
    ("docs/scan.md", r"files over ([\d,]+) MiB", lambda: trees.SIZE_LIMIT_BYTES // MIB),
    ("docs/scan.md", r"line over ([\d,]+) characters", lambda: trees.LINE_LIMIT),
    ("docs/engine.md", r"beyond ([\d,]+) characters", lambda: LONGEST_LINE),
    ("docs/engine.md", r"([\d,]+) s later if the client", lambda: int(DEAD_MAN_SECONDS)),
    ("docs/security.md", r"at most ([\d,]+) MiB", lambda: foreign.RESULT_LIMIT_BYTES // MIB),
    ("docs/security.md", r"at most ([\d,]+) levels", lambda: digests.JSON_DEPTH_LIMIT),
    ("docs/security.md", r"last ([\d,]+) MiB", lambda: containers.OUTPUT_LIMIT_CHARACTERS // MIB),
    ("docs/security.md", r"([\d,]+) wheels pinned", lambda: len(toolbox_wheels())),
)


@pytest.mark.parametrize(("page", "words", "count"), COUNTS, ids=[words for _, words, _ in COUNTS])
def test_a_count_in_the_docs_is_what_the_program_has(
    page: str, words: str, count: Callable[[], int], request: pytest.FixtureRequest
) -> None:
    text, right = text_of(page), f"{count():,}"
    (found,) = re.finditer(words, text)
    if request.config.getoption("--update-golden"):
        start, end = found.span(1)
        (ROOT / page).write_text(text[:start] + right + text[end:], encoding="utf-8")
    else:
        assert found[1] == right


def built_rows() -> str:
    """The rows of the matrix that README lists, with what is known of each."""
    text = (ROOT / "matrix.yaml").read_text(encoding="utf-8")
    lines = []
    for cell in read_matrix(text, path="matrix.yaml", compat=packaged()).cells:
        lock = ROOT / "images" / "locks" / f"pylock.{cell.id}.toml"
        state = "locked" if lock.is_file() else "never built"
        if cell.base.unpinned:
            state = f"never built: its base, {cell.base.name}, is unpinned"
        row = (str(cell.toolkit or cell.vendor), cell.torch, ", ".join(cell.targets), state)
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(dict.fromkeys(lines))


def test_the_readme_says_which_rows_were_never_built(request: pytest.FixtureRequest) -> None:
    head = "| row | torch | targets | |\n|---|---|---|---|\n"
    text, right = text_of("README.md"), built_rows()
    before, _, after = text.partition(head)
    table = after.partition("\n\n")[0]
    if request.config.getoption("--update-golden"):
        (ROOT / "README.md").write_text(before + head + right + after[len(table) :], "utf-8")
    else:
        assert table == right


def first_column(page: str, below: str) -> list[str]:
    """The first cell of each row of the first table below a line, in its order."""
    lines = iter(text_of(page).partition(below)[2].splitlines())
    for line in lines:
        if line.startswith("|--"):
            break
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append(line.split("|")[1].strip())
    return rows


def names(cells: list[str]) -> list[str]:
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def test_a_template_sees_exactly_the_names_that_the_page_lists() -> None:
    seen = render.context_parts(a_cell(), a_lock()).variables
    assert names(first_column("images/README.md", "A template sees these names")) == list(seen)


def test_the_page_of_exit_codes_has_every_cause_and_no_other() -> None:
    family = [
        error
        for error in vars(errors).values()
        if isinstance(error, type) and issubclass(error, WarpfrontError)
    ]
    codes = {error.exit_code for error in family if error is not WarpfrontError}
    codes |= {0, errors.INTERRUPTED_EXIT_CODE, errors.UNREAD_EXIT_CODE, errors.BUG_EXIT_CODE}
    assert [int(code) for code in first_column("docs/exit-codes.md", "# Exit codes")] == sorted(
        codes
    )


def test_the_base_install_has_twelve_dependencies_at_most() -> None:
    project = tomllib.loads(text_of("pyproject.toml"))["project"]
    every = [*map(Requirement, project["dependencies"])]
    assert len([one for one in every if not one.marker]) <= 12
    # What a standard library lacks that cannot unpack foreign archives safely.
    (backport,) = (one for one in every if one.marker)
    assert backport.name == "backports.tarfile"
    needed = {"3.11.2": True, "3.11.4": False, "3.12.0": False}
    for version, is_needed in needed.items():
        assert backport.marker is not None
        assert backport.marker.evaluate({"python_full_version": version}) is is_needed


def test_the_page_of_the_matrix_lists_every_vendor() -> None:
    row = re.search(r"^\| `vendor` \| (.+) \|$", text_of("docs/matrix.md"), re.MULTILINE)
    assert row is not None
    assert names([row[1]]) == list(VENDORS)


def test_the_help_of_vendor_names_every_vendor() -> None:
    said = COMMON["vendor"].help
    assert [name for name in VENDORS if name not in said] == []


def fields(*kinds: type) -> set[str]:
    return {field.name for kind in kinds for field in dataclasses.fields(kind)}


def test_the_page_of_the_matrix_lists_every_field_of_a_row() -> None:
    listed = names(first_column("docs/matrix.md", "## Rows"))
    assert set(listed) == fields(language.Axes)


def test_the_page_of_the_matrix_names_every_key_of_the_language() -> None:
    kinds = [
        kind
        for kind in vars(language).values()
        if dataclasses.is_dataclass(kind)
        and isinstance(kind, type)
        and kind.__module__ == language.__name__
    ]
    # The page itself, and those that it sends its reader to.
    about = ("matrix", "locks", "compile", "release", "ci", "admission", "stacks")
    pages = "".join(text_of(f"docs/{page}.md") for page in about)
    unnamed = {key for key in fields(*kinds) if not re.search(rf"`{key}[`:]|\b{key}:", pages)}
    assert unnamed == set()


def test_the_page_of_the_preflight_has_a_section_for_every_rule() -> None:
    rules = {
        value
        for name, value in vars(findings).items()
        if re.fullmatch(r"[A-Z][A-Z_]+", name) and isinstance(value, str)
    }
    sections = re.findall(r"^### (.+)$", text_of("docs/preflight.md"), re.MULTILINE)
    assert set(sections) == rules


def test_the_page_of_the_engine_has_every_distribution() -> None:
    known = yaml.safe_load((SOURCE / "data" / "engine.yaml").read_text())["distributions"]
    listed = first_column("docs/engine.md", "### What each distribution gets")
    assert [name.lower().replace(" ", "-") for name in listed] == list(known)


def test_the_page_of_compiling_has_every_compiler() -> None:
    matrix = yaml.safe_load(text_of("matrix.yaml"))
    listed = set(names(re.findall(r"^\| (`[^|]+`) \|", text_of("docs/compile.md"), re.MULTILINE)))
    assert set(matrix["compilers"]) <= listed


def commands_page() -> str:
    """The help of every command, as its page."""
    declared = declared_in((*MODULES, *installed_modules()))
    commands = sorted(one.words for one in declared if isinstance(one, Command) and not one.hidden)
    head = (
        (ROOT / "docs/commands.md").read_text(encoding="utf-8").partition("\n## ")[0].rstrip("\n")
    )
    parts = [f"{head}\n"]
    for words in commands:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            assert run([*words, "--help"]) == 0
        parts.append(f"## {' '.join(words)}\n\n```text\n{printed.getvalue()}```\n")
    return "\n".join(parts)


def test_the_page_of_commands_has_the_help_of_each(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        (ROOT / "docs/commands.md").write_text(commands_page(), encoding="utf-8")
    assert text_of("docs/commands.md") == commands_page()


def test_the_page_of_verdicts_has_every_command_and_no_other() -> None:
    listed = names(first_column("docs/verdicts.md", "## What each command"))
    commands = {word for name in listed for word in name.split()[:1]}
    others = {"load", "golden", "warpfront-guard", "device", "libraries", "numpy", "user", "stack"}
    programs = {name for name in commands if name not in others and not name.startswith("-")}
    owners: dict[str, str] = {}
    for one in declared_in((*MODULES, *installed_modules())):
        if isinstance(one, Command):
            old = [name for name in one.formerly if "--" not in name]
            owners |= dict.fromkeys((one.words[0], *old), one.words[0])
    assert programs - {"required", "add", "docs"} - set(owners) == set()
    assert set(owners.values()) <= {owners[name] for name in programs & set(owners)}


_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
_PATH = re.compile(r"`((?:src|tests|scripts|docs|images)/[\w./-]*\w)`")
_TESTED = re.compile(r"pytest (?:-q )?(tests/[\w./-]*\w)")
# Not the guard as images have it, which is a copy under another name.
_MODULE = re.compile(r"python3? -m (warpfront(?!_guard)[\w.]*\w)")
# Written by recipes and by people, not there before.
NOT_YET = re.compile(r"(?:A new file `|\$ cp \S+ )([\w./-]+)")


def lost_tests(text: str) -> Iterator[str]:
    """Names of tests and of the guard's cases that a page gives, and that are none."""
    suite = (ROOT / "tests/adversary/cases.toml").read_text()
    cases = re.findall(r'^id = "(.+)"$', suite, re.MULTILINE)
    # Folders of tests, without the thousands of goldens.
    folders = [ROOT / "tests", *(ROOT / "tests").glob("[!g]*/"), *(ROOT / "tests/unit").glob("*/")]
    for file, name in re.findall(r"`(cases|test_\w+)::([\w-]+)`", text):
        paths = (folder / f"{file}.py" for folder in folders)
        sources = (path.read_text() for path in paths if path.is_file())
        is_there = name in cases if file == "cases" else any(f"def {name}(" in s for s in sources)
        if not is_there:
            yield f"{file}::{name}"


def test_a_test_that_a_page_names_is_there() -> None:
    assert list(lost_tests("".join(page.read_text() for page in PAGES))) == []
    gone = "`cases::floor` `cases::gone` `test_docs::test_gone` `test_gone::test_x`"
    assert list(lost_tests(gone)) == ["cases::gone", "test_docs::test_gone", "test_gone::test_x"]


def broken_paths(page: Path, text: str) -> Iterator[str]:
    """What a page links to or names below the repository, and is not there."""
    for target in _LINK.findall(text):
        if "://" not in target and not (page.parent / target).exists():
            yield target
    named = {*_PATH.findall(text), *_TESTED.findall(text)} - set(NOT_YET.findall(text))
    yield from sorted(path for path in named if not (ROOT / path).exists())
    for module in sorted(set(_MODULE.findall(text))):
        path = ROOT / "src" / Path(*module.split("."))
        if not (path / "__main__.py").exists() and not path.with_suffix(".py").exists():
            yield module


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_names_is_there(page: Path) -> None:
    assert list(broken_paths(page, page.read_text(encoding="utf-8"))) == []


def test_a_path_that_is_not_there_is_found() -> None:
    text = """[x](gone.md) [y](README.md#a) `src/gone.py` `tests/conftest.py` A new file `src/a.py`:
    pytest tests/gone, pytest -q tests/meta, python -m warpfront, python -m warpfront.gone.by
    """
    broken = ["gone.md", "src/gone.py", "tests/gone", "warpfront.gone.by"]
    assert list(broken_paths(ROOT / "README.md", text)) == broken


# What a message names after a page: `docs/ci.md, Installing`.
_SECTION = re.compile(r"docs/([\w-]+)\.md, ([A-Z][a-z' ]*[a-z])")


def lost_sections(source: str) -> list[str]:
    """Return the sections that a source names and their page does not have."""
    return sorted(
        f"{page}: {title}"
        for page, title in set(_SECTION.findall(source))
        if not re.search(rf"^#+ {title}$", text_of(f"docs/{page}.md"), re.MULTILINE)
    )


def test_a_section_that_a_message_names_is_there() -> None:
    sources = [path.read_text("utf-8") for path in SOURCE.rglob("*.py")]
    assert sum(len(_SECTION.findall(source)) for source in sources) > 8
    assert [lost for source in sources for lost in lost_sections(source)] == []
    assert lost_sections("docs/ci.md, Installing; docs/ci.md, Gone.") == ["ci: Gone"]


def test_the_pictures_are_shown_and_small() -> None:
    pictures = sorted((ROOT / "docs" / "images").iterdir())
    shown = "".join(page.read_text("utf-8") for page in PAGES)
    assert [path.name for path in pictures if f"images/{path.name})" not in shown] == []
    assert sum(path.stat().st_size for path in pictures) < PICTURES_BYTES


def test_every_page_and_guide_is_printed_by_its_own_name() -> None:
    files = [path for part in ("*.md", "guides/*.md") for path in (ROOT / "docs").glob(part)]
    assert sorted(path.stem for path in files) == list(pages())
    assert {path.stem: path for path in files} == pages()


def form_of(line: str) -> str:
    """Return a line of the guard without what differs from case to case."""
    line = re.sub(r"\S*\d\S*", "N", line)
    words = (r"(guard: )\S+(?= N wants)", r"(a version of |to have |relax )\S+")
    return functools.reduce(lambda text, word: re.sub(word, r"\1P", text), words, line)


def test_what_a_page_shows_of_the_guard_is_what_it_says() -> None:
    goldens = (ROOT / "tests" / "golden" / "refusals").glob("*.txt")
    known = {form_of(line) for path in goldens for line in path.read_text("utf-8").splitlines()}
    shown = [
        line
        for page in PAGES
        for line in page.read_text("utf-8").splitlines()
        if line.startswith("warpfront guard: ")
    ]
    assert len(shown) >= 6
    assert [line for line in shown if form_of(line) not in known] == []
    assert form_of("warpfront guard: x 1.0 wants y==2; it stays.") not in known
