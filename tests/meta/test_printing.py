"""What reaches a terminal passes one place: `visible_output` of `inside.guard.visible`, in which
tasks, sessions, checks and the guard run. No other module prints.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Mapping
from functools import cache

import pytest
from source_modules import module_texts, module_tree, module_trees

# A module without one of these words prints nothing and ends nothing: it need not be parsed.
WORDS = re.compile(
    r"\b(print|stdout|stderr|__stdout__|__stderr__|visible_output|job_output|Exit|Console)\b"
)
# Programs, and what runs in them: each begins with `visible_output` (the tests of each show it), or
# is a start-up shim of the guard, whose sentences name files and packages of the image.
PROGRAMS = ("warpfront/cli/", "warpfront_checks/", "warpfront_port/tasks/")
# A schema of its own, as JSON; a child process that answers its parent on a pipe.
ALONE = {
    "warpfront/matrix/__main__.py",
    "warpfront/images/template_process.py",
    "warpfront_port/compile/syntax_job.py",
}
STARTS = {
    "warpfront/cli/program.py",
    "warpfront/cli/sessions.py",
    "warpfront/cli/tasks/declaring.py",
    "warpfront_checks/__main__.py",
    "warpfront_checks/guard/__main__.py",
}
# Streams of their own, which end as text: no terminal.
CONSOLES = {"warpfront/report/text.py"}
EXITS = {"warpfront/cli/invoke_tasks.py", "warpfront/cli/tasks/declaring.py"}


@cache
def modules() -> Mapping[str, ast.Module]:
    """Return the syntax tree of each module that has one of `WORDS`, by its path in src."""
    return {name: module_tree(name) for name, text in module_texts().items() if WORDS.search(text)}


def calls(tree: ast.Module, *names: str) -> bool:
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names
        for node in ast.walk(tree)
    )


def prints(tree: ast.Module) -> bool:
    """Whether a module calls print, or names one of the streams of a process."""
    streams = any(
        isinstance(node, ast.Attribute)
        and node.attr in {"stdout", "stderr", "__stdout__", "__stderr__"}
        and isinstance(node.value, ast.Name)
        and node.value.id == "sys"
        for node in ast.walk(tree)
    )
    return streams or calls(tree, "print")


@pytest.mark.parametrize(
    "text", ["print(1)", "import sys\nsys.stdout.write(x)", "f(file=sys.stderr)", "sys.__stdout__"]
)
def test_a_module_that_prints_is_seen(text: str) -> None:
    assert prints(ast.parse(text))


def test_only_programs_print() -> None:
    found = {name for name, tree in modules().items() if prints(tree)}
    elsewhere = {name for name in found if not name.startswith(PROGRAMS)}
    assert elsewhere == ALONE


def test_every_program_makes_its_output_visible() -> None:
    found = {
        name for name, tree in modules().items() if calls(tree, "visible_output", "job_output")
    }
    assert found == STARTS | {"warpfront/cli/job_output.py"}


def test_only_one_module_ends_a_task_with_a_message_and_cleans_it() -> None:
    here = "warpfront/"  # a program that a check runs ends, too
    found = {
        name for name, tree in modules().items() if name.startswith(here) and calls(tree, "Ended")
    }
    assert found == EXITS


def test_consoles_of_rich_take_no_markup_of_foreign_text() -> None:
    for name, tree in modules().items():
        made = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "Console"
        ]
        assert bool(made) == (name in CONSOLES), name
        for node in made:
            given = {one.arg: ast.unparse(one.value) for one in node.keywords}
            assert (given.get("markup"), given.get("emoji")) == ("False", "False"), name


# A number and a noun in a text: `{len(rows)} results` is `1 results` for one of them.
NOUN = re.compile(r" (?:[a-z]+ )?[a-z]+[^s\W]s\b(?! are more than)")
# Images have no `warpfront.system`; the four others are counted as their words are rewritten.
UNCOUNTED = ("warpfront_checks/", *(f"warpfront/{name}/" for name in ("ci", "images", "release")))
UNCOUNTED += ("warpfront/wheels/", "warpfront_port/preflight/")


def uncounted(tree: ast.AST) -> list[int]:
    """Return the lines of f-strings that have a length or a count before a plural."""
    return [
        text.lineno
        for text in ast.walk(tree)
        if isinstance(text, ast.JoinedStr)
        for value, after in itertools.pairwise(text.values)
        if isinstance(value, ast.FormattedValue)
        and isinstance(after, ast.Constant)
        and NOUN.match(str(after.value))
        and re.match(r"len\(|sum\(|count\Z|total\Z|number\Z", ast.unparse(value.value))
    ]


def test_a_number_and_its_noun_are_counted() -> None:
    found = {
        name: lines
        for name, (_, tree) in module_trees().items()
        if not name.startswith(UNCOUNTED) and (lines := uncounted(tree))
    }
    assert found == {}, "warpfront.system.texts.counted gives `1 result`, `2 results`"


def test_an_uncounted_plural_is_seen() -> None:
    seen = (
        'f"{len(rows)} results"\nf"{count} settled steps, 3"\nf"{count} are more"\nf"{name} is"\n'
    )
    assert uncounted(ast.parse(seen)) == [1, 2]
    assert uncounted(ast.parse("f\"{counted(2, 'row')} of {total} bytes\"")) == [1]
    assert uncounted(ast.parse("f\"{counted(2, 'row')}, {count} cells are more than 3\"")) == []


# invoke's tasks work and are not what a person is told to type.
INVOKE = re.compile(r"`invoke [a-z]|\b(?:run|with|by|try):? invoke [a-z]")


def test_hints_name_commands_of_warpfront() -> None:
    found = {
        name: [line for line in text.splitlines() if INVOKE.search(line) and "_MADE" not in line]
        for name, text in module_texts().items()
        if "invoke" in text and not name.endswith("cli/invoke_tasks.py")
    }
    assert {name: lines for name, lines in found.items() if lines} == {}
