#!/usr/bin/env python3
"""Measure the language of Python sources: private words, generic names, docstrings without a
subject.

usage: tools/language.py [PATH ...]     one line for each file or folder, src by default
       tools/language.py --write        write what src has now into tests/meta/budgets.toml

The numbers of budgets.toml may only fall: tests/meta/test_budgets.py compares them with src. Text
is read and parsed, nothing is imported, so that any commit can be measured.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUDGETS = ROOT / "tests" / "meta" / "budgets.toml"
HEADER = """\
# Numbers of src that may only fall. `tools/language.py --write` writes them; a number that rises
# needs its reason in the commit that raises it.
"""
# Words of comments and docstrings that an engineer from outside reads twice.
DIALECT = re.compile(
    r"\b(?:said|says|told|asked|somebody|whoever|nobody|nought|beside|strangers?|elsewhere"
    r"|holds?|held|left|kept|stands|otherwise)\b",
    re.IGNORECASE,
)
# Names that do not say what they name.
_GENERIC = """
found said asked kept tried made told given held left wanted known there here one its fed drawn
sent done ended began begun shown taken own right others how who what when seen at
"""
GENERIC = frozenset(_GENERIC.split())
# A docstring that opens with one of these has no subject and no verb at its beginning.
_OPENERS = """
What Whether Who Which How As Of With In Where One It Those That For Without Not So All Every None
By To On From At
"""
OPENERS = frozenset(_OPENERS.split())
# A string, a comment, a number or a name, whichever begins first: what `tokenize` finds, in a
# tenth of its time.
_TOKEN = re.compile(
    r"(?:\b[rbfuRBFU]{1,2})?"
    r"(?:\"\"\"(?:\\.|[^\\])*?\"\"\"|'''(?:\\.|[^\\])*?'''"
    r"|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')"
    r"|(?P<comment>\#[^\n]*)|\b\d[\w.]*|(?P<name>[^\W\d]\w*)",
    re.DOTALL,
)
_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Measure:
    """The language of some modules. Rates are of all their words, names and docstrings."""

    lines: int
    words: int
    names: int
    docstrings: int
    dialect: int
    generic: int
    without_subject: int

    def budgets(self) -> Mapping[str, float]:
        """Return the numbers of budgets.toml by their keys there."""
        return {
            "lines": self.lines,
            "dialect_per_1000_words": round(1000 * self.dialect / max(self.words, 1), 2),
            "generic_names_percent": round(100 * self.generic / max(self.names, 1), 2),
            "docstrings_without_subject_percent": round(
                100 * self.without_subject / max(self.docstrings, 1), 1
            ),
        }


def measure(modules: Iterable[tuple[str, ast.Module]]) -> Measure:
    """Measure modules, each by its text and its syntax tree."""
    count: Counter[str] = Counter()
    for text, tree in modules:
        comments, names = _comments_and_names(text)
        docstrings = list(_docstrings(tree))
        prose = " ".join([*comments, *docstrings])
        count["lines"] += len(text.splitlines())
        count["words"] += len(prose.split())
        count["names"] += len(names)
        count["docstrings"] += len(docstrings)
        count["dialect"] += len(DIALECT.findall(prose))
        count["generic"] += sum(name in GENERIC for name in names)
        count["without_subject"] += sum(_opener(text) in OPENERS for text in docstrings)
    fields = ("lines", "words", "names", "docstrings", "dialect", "generic", "without_subject")
    return Measure(**{field: count[field] for field in fields})


def _comments_and_names(text: str) -> tuple[list[str], list[str]]:
    tokens = _TOKEN.findall(text)
    return [c for c, _ in tokens if c], [n for _, n in tokens if n]


def _docstrings(tree: ast.Module) -> Iterator[str]:
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, _Documented) and (text := ast.get_docstring(node)):
            yield text
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, block, ())
            pending.extend(inner if isinstance(inner, list) else ())


def _opener(docstring: str) -> str:
    return docstring.split(maxsplit=1)[0].strip(".,:`")


def read_modules(path: Path) -> Iterator[tuple[str, ast.Module]]:
    """Read a module, or all modules below a folder."""
    for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        yield text, ast.parse(text)


def budgets_text(measured: Measure) -> str:
    """Return the text of budgets.toml for what was measured."""
    numbers = (f"{name} = {value}" for name, value in measured.budgets().items())
    return "\n".join([HEADER, "[src]", *numbers, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("paths", nargs="*", type=Path, default=[ROOT / "src"], metavar="PATH")
    parser.add_argument("--write", action="store_true", help="write budgets.toml from src")
    options = parser.parse_args()
    if options.write:
        BUDGETS.write_text(budgets_text(measure(read_modules(ROOT / "src"))), encoding="utf-8")
        return
    for path in options.paths:
        print(path, *(f"{k} {v}" for k, v in measure(read_modules(path)).budgets().items()))


if __name__ == "__main__":
    main()
