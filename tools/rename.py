"""Apply a map of old names to new ones: move modules, rewrite their dotted names and paths, rename
identifiers.

usage: tools/rename.py MAP.toml [--check]
The map has three tables. `[modules]`: dotted old name to dotted new name; files move by `git mv`.
`[names]`: identifiers, renamed as tokens of Python code only, never in comments and plain strings.
`[texts]`: beginnings of quoted texts that name a module. `--check` compares the syntax trees of
HEAD's files with those of the working tree under the map, and prints every file that differs.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tarfile
import tokenize
import tomllib
from pathlib import Path

SKIPPED = ("docs/history/", "CHANGELOG.md", "docs/results/")
_NAME = re.compile(r"[A-Za-z_]\w*")
_FROM = re.compile(
    r"(?m)^([ \t]*)from (warpfront[\w.]*) import (\([^)#]*\)|[^\n(#]+?)([ \t]*#[^\n]*)?$"
)


Table = dict[str, dict[str, str]]


def main(arguments: list[str]) -> int:
    table: Table = {"modules": {}, "names": {}, "texts": {}}
    table |= tomllib.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    if "--check" in arguments:
        return check(table)
    move(table["modules"])
    for path in tracked():
        rewrite(path, table)
    print(", ".join(f"{len(renames)} {kind}" for kind, renames in table.items()))
    return 0


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True).stdout
    return [Path(line) for line in listed.splitlines() if not line.startswith(SKIPPED)]


def new_place(path: str, modules: dict[str, str]) -> str:
    """Return where a file of the sources stands under the map: the longest old name decides."""
    for old, new in sorted(modules.items(), key=lambda pair: -len(pair[0])):
        before, after = (f"src/{name.replace('.', '/')}" for name in (old, new))
        if path == f"{before}.py" or path.startswith(f"{before}/"):
            return f"{after}{path.removeprefix(before)}"
    return path


def move(modules: dict[str, str]) -> None:
    for path in tracked():
        target = Path(new_place(str(path), modules))
        if target != path and path.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["git", "mv", str(path), str(target)], check=True)


def rewrite(path: Path, table: Table) -> None:
    if not path.is_file() or path.is_symlink():
        return
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return
    is_python = path.suffix == ".py" or text.startswith(
        ("#!/usr/bin/env python", "#!/usr/bin/python")
    )
    changed = renamed(text, table, is_python=is_python)
    if changed != text:
        path.write_text(changed, encoding="utf-8")


def renamed(text: str, table: Table, *, is_python: bool) -> str:
    text = with_modules(text, table["modules"])
    for old, new in table["texts"].items():
        text = text.replace(f'"{old}', f'"{new}')
    return with_names(text, table["names"]) if is_python else text


def with_modules(text: str, modules: dict[str, str]) -> str:
    """Replace dotted names (`a.b`), `from a import b` and paths (`a/b`) of moved modules.

    A null byte marks what is new, so that a new name is never taken for an old one.
    """
    text = _FROM.sub(lambda statement: _reimported(statement, modules), text)
    for old, new in modules.items():
        if not _is_named(old, text):
            continue
        text = re.sub(rf"(?<![\w.\0]){re.escape(old)}(?!\w)", f"\0{new}", text)
        old_path, new_path = old.replace(".", "/"), new.replace(".", "/")
        text = re.sub(rf"(?<![\w])src/{re.escape(old_path)}(?![\w])", f"src/{new_path}", text)
        short = old_path.removeprefix("warpfront/")
        if short.count("/"):
            text = re.sub(
                rf"(?<![\w/]){re.escape(short)}(?![\w])", new_path.removeprefix("warpfront/"), text
            )
    return text.replace("\0", "")


def _reimported(statement: re.Match[str], modules: dict[str, str]) -> str:
    """Return `from package import a, b` with each module that moves in a statement of its own."""
    indent, package, listed, comment = statement.groups()
    names = [name.strip() for name in listed.strip("()\n ").split(",") if name.strip()]
    moving = [name for name in names if f"{package}.{name.split()[0]}" in modules]
    if not moving:
        return statement[0]
    lines = []
    for name in moving:
        child, _, alias = name.partition(" as ")
        parent, _, new = modules[f"{package}.{child}"].rpartition(".")
        lines.append(f"{indent}from \0{parent} import {_alias(new, alias or child)}{comment or ''}")
    if rest := [name for name in names if name not in moving]:
        lines.append(f"{indent}from {package} import {', '.join(rest)}{comment or ''}")
    return "\n".join(lines)


def _alias(new: str, used: str) -> str:
    return new if new == used else f"{new} as {used}"


def _is_named(module: str, text: str) -> bool:
    """Return whether an expression of `with_modules` can match: plain searches are much faster."""
    path = module.replace(".", "/").removeprefix("warpfront/")
    return module in text or path in text


def with_names(text: str, names: dict[str, str]) -> str:
    """Replace identifiers; in f-strings inside braces only."""
    if not any(re.search(rf"\b{name}\b", text) for name in names):
        return text
    text = re.sub(
        r"(?m)^__all__ = \[[^\]]*\]",
        lambda listed: _NAME.sub(lambda word: names.get(word[0], word[0]), listed[0]),
        text,
    )
    lines = text.splitlines(keepends=True)
    edits = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME and token.string in names:
            edits.append((token.start, token.end, names[token.string]))
        elif token.type == tokenize.STRING and "{" in token.string and _is_formatted(token.string):
            edits.append((token.start, token.end, _formatted(token.string, names)))
    for start, end, new in reversed(edits):
        first, last = lines[start[0] - 1], lines[end[0] - 1]
        lines[start[0] - 1 : end[0]] = (first[: start[1]] + new + last[end[1] :]).splitlines(
            keepends=True
        )
    return "".join(lines)


def _is_formatted(literal: str) -> bool:
    return "f" in re.split("['\"]", literal, maxsplit=1)[0].lower()


def _formatted(literal: str, names: dict[str, str]) -> str:
    def inside(found: re.Match[str]) -> str:
        return _NAME.sub(lambda word: names.get(word[0], word[0]), found[0])

    return re.sub(r"(?<!\{)\{[^{}]+\}", inside, literal)


def check(table: Table) -> int:
    """Print each file whose syntax tree is not that of HEAD's file under the map."""
    archive = subprocess.run(["git", "archive", "HEAD"], capture_output=True, check=True).stdout
    same = wrong = 0
    with tarfile.open(fileobj=io.BytesIO(archive)) as members:
        for member in members:
            content = members.extractfile(member)
            if not content or member.name.startswith(SKIPPED) or not member.name.endswith(".py"):
                continue
            path = Path(new_place(member.name, table["modules"]))
            expected = renamed(content.read().decode(), table, is_python=True)
            if path.is_file() and dump(path.read_text(encoding="utf-8")) == dump(expected):
                same += 1
            else:
                print(f"{path}: not the syntax tree of {member.name} under the map")
                wrong += 1
    print(f"{same} of {same + wrong} files have the same syntax tree under the map")
    return 1 if wrong else 0


def dump(text: str) -> str:
    """Return a syntax tree without places; each block's imports and names sorted, as formatting
    sorts them.
    """
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            node.names.sort(key=lambda alias: alias.name)
        for block in ("body", "orelse", "finalbody"):
            nodes = getattr(node, block, None)
            if isinstance(nodes, list):
                nodes.sort(key=lambda one: ast.dump(one) if _is_import(one) else "~")
    return ast.dump(tree)


def _is_import(node: ast.AST) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
