"""What nvcc takes of C++ and clang, which hipcc is, refuses. Pure.

HIP's vectors have constructors where CUDA's are plain structures, its indices of threads and blocks
are types of their own, narrowing between braces is an error, and a definition without the
specifiers of its declaration is another function.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from tree_sitter import Node

from warpfront_port.scan.cuda.lexer import Span
from warpfront_port.scan.cuda.view import View, rule_match
from warpfront_port.scan.findings import Match

_VECTOR = re.compile(
    r"\b(?:u?(?:char|short|int|long|longlong)|float|double)([1-4])\s+\w+\s*(\[[^;{}=]*\])?\s*=\s*\{"
)
_WHOLE_INDEX = re.compile(r"(?<![\w.>])(?:threadIdx|blockIdx|blockDim|gridDim)\b(?!\s*\.)")
_DIM3 = re.compile(r"\bdim3\s*(?:\w+\s*)?(?:=\s*(?:dim3\s*)?)?\{")
_WIDE = frozenset({"size_t", "int64_t", "uint64_t", "long", "ptrdiff_t", "ssize_t"})
_UNSIGNED = frozenset({"unsigned", "uint", "uint32_t", "uint16_t", "uint8_t"})
_SIGNED = frozenset({"int", "int32_t"})
_OWN_ATOMIC = re.compile(
    r"\batomic(?:Max|Min)\s*(?=\(\s*(?:volatile\s+)?(float|double)\s*\*[^,)]*,\s*(?:const\s+)?\1\b)"
)
_ARITHMETIC = frozenset("+-*/%")
_MEMBER = re.compile(
    r"(?<![\w:])(\w+)\s*(?:<[^;{}()<>]{1,80}>)?\s*::\s*(\w+)(?:(?<=\boperator)\s*(?:\(\)|[^\s\w(]{1,3}))?\s*(?=\()"
)


def dialect_rule_matches(view: View) -> Iterator[Match]:
    """CU161 to CU166, in code that hipcc compiles."""
    for names, searching in _SEARCHES if view.is_cuda else ():
        if not names or names & view.names:
            yield from searching(view)


def _short_lists(view: View) -> Iterator[Match]:
    """Between braces fewer numbers than a vector has: one is taken by an explicit constructor, two
    of four by none. Another vector may be one element.
    """
    for found in _VECTOR.finditer(view.code):
        elements = _elements(view, found.end() - 1)
        alone = len(elements) == 1 and elements[0].type == "number_literal"
        if alone if found[2] else alone or 1 < len(elements) < int(found[1]):
            yield rule_match(view, "CU161", (found.start(), found.end() - 1))


def _elements(view: View, opening: int) -> list[Node]:
    """What stands in the braces that open there."""
    listed = view.syntax.around(opening, "initializer_list")
    return [] if listed is None or listed.start_byte != opening else listed.named_children


def _whole_indices(view: View) -> Iterator[Match]:
    for found in _WHOLE_INDEX.finditer(view.code):
        name, start = view.syntax.taker(found.start(), "identifier", frozenset())
        declared = view.syntax.declared(name, start) if name else None
        if declared is not None and "uint3" in declared.type.split():
            yield rule_match(view, "CU162", (start, found.end()), what=f"{name} = {found[0]}")


def _narrowed(view: View) -> Iterator[Match]:
    for found in _DIM3.finditer(view.code):
        for one in _elements(view, found.end() - 1):
            if (kind := _kind(view, one)) in ("int", "64 bits"):
                span = (one.start_byte, one.end_byte)
                what = f"{view.syntax.text(one)} ({kind})"
                yield rule_match(view, "CU163", span, what=what)


def _kind(view: View, node: Node, depth: int = 20) -> str:
    """What an expression of numbers is, by C++'s conversions: "constant", "unsigned", "int",
    "64 bits", and "" where that is not known, or it is too deep.
    """
    match node.type if depth else "":
        case "number_literal":
            return "constant"
        case "parenthesized_expression":
            inner = node.named_children
            return _kind(view, inner[0], depth - 1) if inner else ""
        case "identifier":
            return _kind_of_variable(view, node)
        case "binary_expression" if view.syntax.text(node.children[1]) in _ARITHMETIC:
            kinds = {_kind(view, node.children[at], depth - 1) for at in (0, 2)}
            order = ("", "64 bits", "unsigned", "int", "constant")
            return next(kind for kind in order if kind in kinds)
        case "call_expression":
            called = view.syntax.text(node.child_by_field_name("function"))
            return "64 bits" if re.search(r"(?:\.|->)(?:size|numel)\Z", called) else ""
        case _:
            return ""


def _kind_of_variable(view: View, node: Node) -> str:
    declared = view.syntax.declared(view.syntax.text(node), node.start_byte)
    if declared is None or declared.shape - {"init_declarator"}:
        return ""
    if view.syntax.around(declared.start, "template_parameter_list") is not None:
        return "constant"
    words = {word.removeprefix("std::") for word in declared.type.split()}
    constant = words & {"const", "constexpr"} and "init_declarator" in declared.shape
    if constant or words & {"auto"}:
        return ""
    if words & _WIDE:
        return "64 bits"
    return "unsigned" if words & _UNSIGNED else "int" if words & _SIGNED else ""


def _other_functions(view: View) -> Iterator[Match]:
    """Members that are declared for a device, and defined outside of their class for none. Where
    an overload is the host's it may be that one.
    """
    for found in _MEMBER.finditer(view.code):
        name = view.syntax.function_name(found.start(2))
        if found[2] not in name or view.syntax.specifiers(found.start(2)):
            continue
        places = view.syntax.places(found[2])
        heads = [head for at in places if (head := _member_head(view, found[1], at)) is not None]
        if heads and all("device" in view.syntax.specified(head) for head in heads):
            yield rule_match(view, "CU164", found.span(), what=f"{found[1]}::{found[2]}")


def _member_head(view: View, owner: str, place: int) -> str | None:
    """What stands before the name at `place`, where a member of `owner` is declared."""
    declared = view.syntax.around(place, "field_declaration", "declaration")
    of = view.syntax.around(place, "struct_specifier", "class_specifier")
    if declared is None or of is None or view.syntax.text(of.child_by_field_name("name")) != owner:
        return None
    head = view.code[declared.start_byte : place]
    return None if "(" in head else head


def _own_atomics(view: View) -> Iterator[Match]:
    """HIP has these of `float` and `double`, which CUDA leaves to whoever wants them."""
    for found in _OWN_ATOMIC.finditer(view.code):
        namespace = view.syntax.around(found.start(), "namespace_definition")
        if namespace is None and view.syntax.defines_function(found.start()):
            yield rule_match(
                view, "CU165", (found.start(), found.end()), what=f"{found[0]}({found[1]}*)"
            )


def _other_arguments(view: View) -> Iterator[Match]:
    for name in sorted(_FORMS & view.names):
        for place in view.syntax.places(name):
            whole, given = view.syntax.call(place)
            short = name.endswith("GraphInstantiate") and 0 < len(given) < 5
            if short or (name.endswith("DevicePointer") and given and _is_typed(view, given[0])):
                yield rule_match(view, "CU166", whole)


def _is_typed(view: View, given: Span) -> bool:
    """Whether an argument is the address of a pointer to something, `void` apart."""
    name = view.code[slice(*given)].removeprefix("&").strip()
    declared = view.syntax.declared(name, given[0]) if view.code[given[0]] == "&" else None
    return declared is not None and "void" not in declared.type.split()


_FORMS = frozenset(
    {"cudaGraphInstantiate", "hipGraphInstantiate"}
    | {"cudaHostGetDevicePointer", "hipHostGetDevicePointer"}
)
_SEARCHES: Final[tuple[tuple[frozenset[str], Callable[[View], Iterator[Match]]], ...]] = (
    (frozenset(), _short_lists),
    (frozenset({"uint3"}), _whole_indices),
    (frozenset({"dim3"}), _narrowed),
    (frozenset(), _other_functions),
    (frozenset({"atomicMax", "atomicMin"}), _own_atomics),
    (_FORMS, _other_arguments),
)
