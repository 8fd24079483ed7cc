"""YAML at the edge of trust: text to plain values, with the line of each, or every
problem found. Pure.

Only what a matrix needs is read: mappings with string keys, lists, strings, `true`/`false` and
decimal integers. Whatever YAML would turn into something else than it looks like (`12.9`, `3.10`,
`on`, `2026-11-21`, an empty value) becomes `Unquoted`, which no field accepts.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from warpfront.errors import MatrixError, Problem
from warpfront.system.strict_values import read_as

SIZE_LIMIT_CHARACTERS = 512 * 1024
DEPTH_LIMIT = 16
TOO_DEEP = f"nested deeper than {DEPTH_LIMIT} levels"
_FLATTER = "a matrix needs no deeper values: remove brackets or indentation"
_WRITE_OUT = "write the values out, without aliases"
NODE_LIMIT = 50_000

_TAG = "tag:yaml.org,2002:"
_SCALARS = frozenset({"str", "bool", "int", "float", "null", "timestamp", "value"})
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]")
_INTEGER = re.compile(r"(0|[1-9][0-9]{0,8})\Z")
# libyaml's parser where PyYAML was built with it: the same events, an order of magnitude faster.
LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Where = tuple[str | int, ...]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unquoted:
    """A scalar that YAML does not read as the string it looks like: its text, and what YAML sees
    (`float`, `int`, `bool`, `timestamp`, `null`)."""

    text: str
    kind: str


@dataclass(slots=True, kw_only=True)
class Document:
    """A YAML file as plain values. `lines` maps the path of each value (`("rows", 0, "torch")`) to
    its 1-based line; `problems` are those of the YAML itself, and what its readers add.
    """

    path: str
    value: object = None
    lines: dict[Where, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def line(self, where: Where) -> int:
        """Return the line of the value at `where`, or of the nearest value around it."""
        while where and where not in self.lines:
            where = where[:-1]
        return self.lines.get(where, 1)

    def problem(self, where: Where | int, message: str, hint: str) -> Problem:
        """Return a problem of the value at `where`, or of a line."""
        line = where if isinstance(where, int) else self.line(where)
        return Problem(path=self.path, line=line, message=message, hint=hint)

    def refuse(self, where: Where | int, message: str, hint: str) -> None:
        """Add a problem of the value at `where`, or of a line."""
        self.problems.append(self.problem(where, message, hint))

    @property
    def error(self) -> MatrixError:
        """Return every problem, in the order of the lines."""
        return MatrixError(tuple(sorted(set(self.problems))))


def plain_values(text: str) -> Any:
    """Return the values of a YAML text that was read before, or that we wrote."""
    return yaml.load(text, Loader=LOADER)  # noqa: S506 - a safe one


def read_document(text: str, *, path: str) -> Document:
    """Return `text` as a `Document`. Raise `MatrixError` when there is nothing to go on with:
    too big, too deep, not YAML, empty.
    """
    if len(text) > SIZE_LIMIT_CHARACTERS:
        message = f"{len(text)} characters are more than the {SIZE_LIMIT_CHARACTERS} that are read"
        hint = "use product: and zip: instead of writing every cell out"
        raise _refused(path, 0, message, hint)
    if match := _CONTROL.search(text.replace("\r\n", "\n")):
        line = match.string.count("\n", 0, match.start()) + 1
        message = f"character U+{ord(match.group()):04X}"
        raise _refused(path, line, message, "save the file as plain UTF-8 text")
    try:
        _refuse_depth(text, path)
        root = yaml.compose(text, Loader=LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 0
        problem = error.problem or error.context
        # libyaml has a limit of its own since PyYAML 6.0.4, and reads ahead of its events.
        if problem == "exceeded maximum nesting depth":
            raise _refused(path, line, TOO_DEEP, _FLATTER) from None
        raise _refused(path, line, *_syntax(text, line, problem or "")) from None
    except yaml.YAMLError as error:
        raise _refused(path, 1, "this file is no YAML", "save it as plain UTF-8 text") from error
    if root is None:
        raise _refused(path, 1, "empty file", "start from docs/matrix.md, or `warpfront init`")
    document = Document(path=path)
    document.value = _Reader(document=document).read(root, ())
    return document


def _syntax(text: str, line: int, problem: str) -> tuple[str, str]:  # noqa: PLR0911 - one a fault
    """Return the problem of a line that is no YAML, and what to write. The parser has no words for
    a person; the line shows which of the few usual faults it is.
    """
    lines = text.splitlines()
    bad = lines[line - 1] if 0 < line <= len(lines) else ""
    indent = bad[: len(bad) - len(bad.lstrip())]
    if "\t" in indent:
        spaced = bad.replace("\t", "  ")
        return "a tab at the start of the line", f"indent with spaces: `{spaced}`"
    if "unexpected end of stream" in problem or "quoted scalar" in problem:
        return "a quote is not closed", "close it on the line where it opens"
    if "mapping values are not allowed" in problem:
        key, _, value = bad.strip().partition(": ")
        quoted = f'quote the value: {key}: "{value}"'
        hint = quoted if ": " in value else "give it less indentation"
        return "a second `: ` in one line, or a line that is indented too far", hint
    if "another document" in problem:
        return "a second document begins after `---`", "keep one document in the file"
    if "undefined alias" in problem:
        return "`*` names no anchor of the file", "quote a value that begins with `*`"
    if line > len(lines) or "node content" in problem or "flow" in problem:
        return "a bracket is not closed, or an item is missing", "close every `[` and `{`"
    if "expected" in problem or "block" in problem:
        # The indentation that the one above it asks for.
        before = (text for text in reversed(lines[: line - 1]) if text.split("#")[0].strip())
        above = next(before, "")
        spaces = len(above) - len(above.lstrip()) + 2 * above.rstrip().endswith(":")
        aligned = " " * spaces + lines[line - 1].strip()
        hint = f"indent the keys of one mapping alike: `{aligned}`"
        return f"the indentation of `{bad.strip()}` fits no line above", hint
    return "this line is no YAML", "quote a value that begins with a special character"


def _refused(path: str, line: int, message: str, hint: str) -> MatrixError:
    return MatrixError((Problem(path=path, line=line, message=message, hint=hint),))


def _refuse_depth(text: str, path: str) -> None:
    """Depth is counted on the flat event stream, before anything recursive runs."""
    depth = 0
    for event in yaml.parse(text, Loader=LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > DEPTH_LIMIT:
            line = event.start_mark.line + 1 if event.start_mark else 0
            raise _refused(path, line, TOO_DEEP, _FLATTER)


@dataclass(slots=True, kw_only=True)
class _Reader:
    """Walks the composed nodes; aliases are expanded, so it counts what it visits."""

    document: Document
    open_nodes: set[int] = field(default_factory=set)

    def read(self, node: yaml.Node, where: Where) -> object:
        line, path, lines = node.start_mark.line + 1, self.document.path, self.document.lines
        lines.setdefault(where, line)
        if len(lines) > NODE_LIMIT:
            message = f"more than {NODE_LIMIT} values once aliases expand"
            raise _refused(path, line, message, _WRITE_OUT)
        if id(node) in self.open_nodes:
            raise _refused(path, line, "an alias (*name) contains itself", _WRITE_OUT)
        if len(where) > DEPTH_LIMIT:
            raise _refused(path, line, f"{TOO_DEEP} once aliases expand", _WRITE_OUT)
        self.open_nodes.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
                return self._read_mapping(node, where)
            if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
                return [self.read(item, (*where, place)) for place, item in enumerate(node.value)]
            if isinstance(node, yaml.ScalarNode) and node.tag.removeprefix(_TAG) in _SCALARS:
                return _read_scalar(node)
            self._problem(node, f"tag {node.tag.replace(_TAG, '!!')} is not read", "remove the tag")
            return Unquoted(text="", kind="tag")
        finally:
            self.open_nodes.discard(id(node))

    def _read_mapping(self, node: yaml.MappingNode, where: Where) -> dict[str, object]:
        mapping: dict[str, object] = {}
        lines = self.document.lines
        for key_node, value_node in node.value:
            key = self._read_key(key_node)
            if key is None:
                continue
            if key in mapping:
                message = f"duplicate key `{key}` (first on line {lines[(*where, key)]})"
                self._problem(key_node, message, "keep one of them")
                continue
            lines[(*where, key)] = key_node.start_mark.line + 1
            mapping[key] = self.read(value_node, (*where, key))
        return mapping

    def _read_key(self, node: yaml.Node) -> str | None:
        if not isinstance(node, yaml.ScalarNode):
            self._problem(node, "a key must be a string", "write `name: value`")
            return None
        if node.tag == f"{_TAG}merge":
            self._problem(node, "merge keys (<<) are not read", "use defaults:, or repeat the line")
            return None
        # YAML 1.1 calls `on` and `yes` booleans; as keys they are named as they were written.
        key = node.value if node.tag == f"{_TAG}bool" else _read_scalar(node)
        if isinstance(key, str):
            return key
        self._problem(node, f"key `{node.value}` is not read as a string", "quote it")
        return None

    def _problem(self, node: yaml.Node, message: str, hint: str) -> None:
        self.document.refuse(node.start_mark.line + 1, message, hint)


def _read_scalar(node: yaml.ScalarNode) -> str | int | bool | Unquoted:
    text: str = node.value
    kind = node.tag.removeprefix(_TAG)
    if kind == "str":
        return text
    if kind == "bool" and text in {"true", "false"}:
        return text == "true"
    if kind == "int" and _INTEGER.match(text):
        return int(text)
    return Unquoted(text=text, kind=kind)


def checked(document: Document, into: type[T]) -> T:
    """Return a document's value as an `into`. Raise `MatrixError` with every problem of the file,
    in the order of its lines.
    """
    try:
        value = read_as(into, document.value)
        if not document.problems:
            return value
    except ValidationError as error:
        # A list that is too short only because its entries are wrong is an echo of those; of the
        # findings that each arm of a choice has, the first is enough.
        first = {
            _in_file(detail, document): detail
            for detail in reversed(error.errors())
            if detail["type"] != "too_short" or not detail.get("input")
        }
        for where, detail in first.items():
            document.refuse(where, *_words_of(detail, where, into))
    raise document.error


def _words_of(detail: ErrorDetails, where: Where, into: type) -> tuple[str, str]:
    """Return the problem and the remedy. No text of pydantic's is in them."""
    value, facts = detail.get("input"), detail.get("ctx", {})
    key = next((str(part) for part in reversed(where) if isinstance(part, str)), "the file")
    match detail["type"]:
        case "unexpected_keyword_argument":
            message = f"unknown key `{key}`"
            hint = _known_instead(key, fields_at(into, where[:-1]))
        case kind if kind in _MISSING:
            message, hint = f"`{key}` is missing{_inside(where[:-1])}", _as_missing(where, into)
        case kind if isinstance(value, Unquoted) or (
            isinstance(value, bool | int) and kind == "string_type"
        ):
            message, hint = _unquoted(value)
        case kind if kind in _SHAPES:
            is_entry = bool(where) and isinstance(where[-1], int)
            message, hint = _as_shape(kind, key, value, is_entry=is_entry)
        case "too_short":
            message, hint = f"`{key}` is empty", "give at least one value"
        case "literal_error":
            names = re.findall(r"[^',\s]+", str(facts["expected"]).replace(" or ", " "))
            near = difflib.get_close_matches(str(value), names, n=1)
            meant = f"did you mean `{near[0]}`? " if near else ""
            message = f"`{key}` cannot be `{value}`"
            hint = f"{meant}write one of: {', '.join(names)}"
        case kind if kind in _BOUNDS:
            word, bound = _BOUNDS[kind]
            message, hint = f"`{key}` cannot be {value}", f"write {word} {facts[bound]}"
        case "form":
            message, hint = f"{detail['msg']}{_inside(where)}", str(facts["hint"])
        case _:
            message, hint = f"`{key}` cannot have this value", "see `warpfront docs matrix`"
    return message, hint


_MISSING = {"missing", "missing_argument", "missing_keyword_only_argument"}
_BOUNDS = {"greater_than_equal": ("at least", "ge"), "less_than_equal": ("at most", "le")}


def _in_file(detail: ErrorDetails, document: Document) -> Where:
    """Return the place of a finding as the file has it: pydantic names arms of a choice, too."""
    where: Where = ()
    for part in detail["loc"]:
        if (*where, part) in document.lines:
            where = (*where, part)
    return (*where, detail["loc"][-1]) if detail["type"] in _MISSING else where


def _as_missing(where: Where, into: type) -> str:
    """Return the line to write for a missing key."""
    key, above = where[-1], where[-2:-1]
    kinds = {field.name: str(field.type) for field in fields_at(into, where[:-1])}
    literal = re.match(r"Literal\[(\w+)\]", kinds.get(str(key), ""))
    line = f"write `{key}: {literal[1] if literal else '...'}`"
    if not above:
        return f"{line} at the start of a line"
    return f"{line} below `{above[0]}:`" if isinstance(above[0], str) else line


# pydantic's names of errors about the kind of a value: what it is not, and the line to write.
_SHAPES = {
    **dict.fromkeys(
        ("dataclass_type", "dict_type", "mapping_type"),
        ("is no mapping", "write `name: value` below `{key}:`, indented by two spaces"),
    ),
    **dict.fromkeys(("tuple_type", "list_type"), ("is no list", "write a list: {key}: [{words}]")),
    **dict.fromkeys(("int_type", "int_from_float"), ("is no number", "write {key}: 1")),
    "string_type": ("is no string", 'write one value: {key}: "{text}"'),
    "bool_type": ("is neither true nor false", "write {key}: true"),
}


def _as_shape(kind: str, key: str, value: object, *, is_entry: bool) -> tuple[str, str]:
    """Return the problem of a value of another kind, and the line to write."""
    shape, line = _SHAPES[kind]
    text = value if isinstance(value, str) else "..."
    if is_entry:
        entry = "name: value" if "mapping" in shape else text
        return f"an entry of `{key}` {shape}", f"write the entry as `- {entry}`"
    words = ", ".join(text.split() or ["..."])
    return f"`{key}` {shape}", line.format(key=key, text=text, words=words)


def _known_instead(key: str, fields: tuple[dataclasses.Field[Any], ...]) -> str:
    """Return what to write for an unknown `key`. Metadata may have a field's `formerly` name."""
    if now := {each.metadata.get("formerly"): each.name for each in fields}.get(key):
        return f"it is called `{now}` now: `warpfront migrate` writes it"
    names = sorted(each.name for each in fields)
    near = difflib.get_close_matches(key, names, n=1)
    return f"did you mean `{near[0]}`?" if near else f"known here: {', '.join(names)}"


def _unquoted(value: object) -> tuple[str, str]:
    if not isinstance(value, Unquoted):
        text = str(value).lower()
        return f"`{text}` is a number or a boolean to YAML", _quote(text)
    if value.kind == "null":
        return "the value is empty", "give it a value, or remove the line"
    return f"`{value.text}` is a {value.kind} to YAML, not a string", _quote(value.text)


def _quote(text: str) -> str:
    return f'quote versions and strings: "{text}"'


def _inside(where: Where) -> str:
    names = [str(part) for part in where if isinstance(part, str)]
    return f" in {'.'.join(names)}" if names else ""


def fields_at(into: object, where: Where) -> tuple[dataclasses.Field[Any], ...]:
    """Return the fields of the dataclass at `where` below `into`."""
    if dataclasses.is_dataclass(into) and isinstance(into, type):
        if not where:
            return dataclasses.fields(into)
        hints = typing.get_type_hints(into, include_extras=False)
        return fields_at(hints.get(str(where[0]), None), where[1:])
    for inner in typing.get_args(into):
        is_item = typing.get_origin(into) in {tuple, list, Mapping, dict}
        if fields := fields_at(inner, where[1:] if is_item and where else where):
            return fields
    return ()
