"""Changes of matrix.yaml as text, by the parser's marks: every other byte stays. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import yaml

from warpfront.matrix.compat import Compat
from warpfront.matrix.compat_table import Combination
from warpfront.matrix.language import MatrixText
from warpfront.matrix.vendors import VENDORS
from warpfront.system.document import LOADER, Where, fields_at, read_document

# Targets of new rows, as far as the wheels have them: data centre, and the newest of desktops.
_USUAL = {
    "nvidia": ("sm_80", "sm_90", "sm_100", "sm_120"),
    "amd": ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"),
}


def with_entry(text: str, where: tuple[str, ...], lines: Iterable[str]) -> str:
    """Return `text` with `lines` at the end of the mapping or list at `where`, indented as its
    other entries; a missing top-level key is added.
    """
    node = _node(text, where)
    rows = text.splitlines()
    if node is None:
        body = [f"{where[-1]}:", *(f"  {line}" for line in lines)]
        return "\n".join([*rows, "", *body]) + "\n"
    first = node.value[0][0] if isinstance(node, yaml.MappingNode) else node.value[0]
    is_item = isinstance(node, yaml.SequenceNode)
    indent = " " * (first.start_mark.column - (2 if is_item else 0))
    end = _last_line(node)
    added = [f"{indent}{line}" if line else "" for line in lines]
    return "\n".join([*rows[: end + 1], *added, *rows[end + 1 :]]) + "\n"


def with_item(text: str, where: tuple[str, ...], item: str) -> str:
    """Return `text` with `item` at the end of the list at `where`, in its own style."""
    node = _node(text, where)
    assert isinstance(node, yaml.SequenceNode)
    if not node.flow_style:
        return with_entry(text, where, [f"- {item}"])
    end = node.value[-1].end_mark.index if node.value else node.end_mark.index - 1
    return f"{text[:end]}{', ' if node.value else ''}{item}{text[end:]}"


def rows_with(text: str, key: str) -> tuple[int, ...]:
    """Return the lines of the rows that have `key` of their own."""
    node = _node(text, ("rows",))
    rows = node.value if isinstance(node, yaml.SequenceNode) else []
    mappings = [row for row in rows if isinstance(row, yaml.MappingNode)]
    having = (row for row in mappings if key in {name.value for name, _ in row.value})
    return tuple(row.start_mark.line + 1 for row in having)


def with_python(text: str, python: str, base: str) -> str:
    """Return `text` with a copy of each row that has no Python of its own, for another Python."""
    node = _node(text, ("rows",))
    assert isinstance(node, yaml.SequenceNode)
    lines, copies = text.splitlines(), list[str]()
    exempt = set(rows_with(text, "python"))
    for row in node.value:
        if row.start_mark.line + 1 not in exempt:
            block = lines[row.start_mark.line : _last_line(row) + 1]
            column = row.start_mark.column
            plain = [line[column:] for line in block]
            copies += ["", f"- {plain[0]}", *(f"  {line}" for line in plain[1:])]
            copies += [f'  python: "{python}"', f"  base: {base}"]
    return with_entry(text, ("rows",), copies)


def row_lines(
    vendor: str, toolkit: str, python: str, compat: Compat, *, torch: str = ""
) -> tuple[str, ...]:
    """Return the newest row that the compat table supports; () if it has none."""
    facts, machine = VENDORS[vendor], "x86_64"
    for release in reversed(compat.table.releases):
        if torch and release.torch != torch:
            continue
        wanted = Combination(
            vendor=vendor,
            toolkit=toolkit,
            targets=(),
            machine=machine,
            python=python,
            torch=release.torch,
        )
        for index in filter(None, (compat.index_for(vendor, toolkit, release.torch), "pypi")):
            targets = [
                target
                for target in _USUAL.get(vendor, facts.known_targets)
                if facts.machine_of(target) in {None, machine}
                and compat.judge(replace(wanted, index=index, targets=(target,))) == ()
            ]
            if targets:
                listed = f"[{', '.join(targets)}]"
                return (
                    f"- vendor: {vendor}",
                    *([f'  toolkit: "{toolkit}"'] if toolkit else []),
                    f"  targets: {listed if len(targets) > 1 else targets[0]}",
                    f'  torch: "{release.torch}"',
                    *(["  index: pypi"] if index == "pypi" else []),
                )
    return ()


def newest_toolkits(vendor: str, compat: Compat) -> tuple[str, ...]:
    """Return the toolkits of a vendor that the table has wheels for, newest first."""
    indexes = compat.table.indexes.values()
    names = {index.toolkit or "" for index in indexes if index.vendor == vendor}
    return tuple(sorted(names, key=lambda n: [int(p) for p in n.split(".") if p], reverse=True))


def with_current_keys(text: str, path: str) -> tuple[str, tuple[str, ...]]:
    """Return `text` with the keys that have another name today, and a line for each of them."""
    read_document(text, path=path)  # refuses what is no tree
    renamed = {
        key.start_mark.index: (key, current.name)
        for where, key in _keys(_node(text, ()), ())
        for current in fields_at(MatrixText, where)
        if current.metadata.get("formerly") == key.value
    }
    notes = []
    for start, (key, name) in sorted(renamed.items(), reverse=True):
        text = f"{text[:start]}{name}{text[key.end_mark.index :]}"
        notes.append(f"{path}:{key.start_mark.line + 1}: `{key.value}` is `{name}` now")
    return text, tuple(reversed(notes))


def _keys(node: yaml.Node | None, where: Where) -> Iterator[tuple[Where, yaml.ScalarNode]]:
    """Yield every key below a node, with the place of its mapping."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield where, key
            yield from _keys(value, (*where, key.value))
    elif isinstance(node, yaml.SequenceNode):
        for place, item in enumerate(node.value):
            yield from _keys(item, (*where, place))


def block_of(text: str, name: str) -> tuple[str, ...]:
    """Return the lines of the top-level entry `name`; () if there is none."""
    node = _node(text, (name,))
    if node is None:
        return ()
    return tuple(text.splitlines()[node.start_mark.line - 1 : _last_line(node) + 1])


def _node(text: str, where: tuple[str, ...]) -> yaml.Node | None:
    node: yaml.Node | None = yaml.compose(text, Loader=LOADER)
    for key in where:
        pairs = node.value if isinstance(node, yaml.MappingNode) else []
        node = next((value for name, value in pairs if name.value == key), None)
    return node


def _last_line(node: yaml.Node) -> int:
    """Return the 0-based line of the last leaf: a block's own end lies beyond comments."""
    if not isinstance(node, yaml.CollectionNode) or not node.value or node.flow_style:
        return int(node.end_mark.line)
    last = node.value[-1]
    return _last_line(last[1] if isinstance(last, tuple) else last)
