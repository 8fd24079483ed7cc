"""Edits that let AMD through and leave NVIDIA's code as it is: lines put behind a gate. Pure.

Nothing is rewritten in place. An edit adds preprocessor lines, and each fixed file is compared with
the file before it. With NVIDIA's macros both must yield the same tokens, or the file is unchanged.
A finding that such an edit cannot settle (PTX, tensor cores, wave sizes) remains.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from warpfront_port.scan.cuda.lexer import Directive, blank
from warpfront_port.scan.cuda.view import View
from warpfront_port.scan.findings import SIDES, Context, Gate, Match, SourceText

FIXABLE = frozenset({"CU108"})
MASK = "WARPFRONT_ALL_LANES"
_FULL_MASK = re.compile(r"0[xX][fF]{8}[uU]?\b")
_ROCM = "defined(USE_ROCM) || defined(__HIP_PLATFORM_AMD__) || defined(__HIP__)"
"""torch's builds define the first, builds with CMake and HIP's headers the second: above those only
the third is there, which clang defines for the language.
"""
_END = "#endif\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """A file before and after its edits, and the rules that they answer, each once a place."""

    path: PurePosixPath
    before: str
    after: str
    rules: tuple[str, ...]

    @property
    def patch(self) -> str:
        """Return a unified diff that `git apply` takes."""
        lines = difflib.unified_diff(
            _lines(self.before),
            _lines(self.after),
            quoted_path(f"a/{self.path}"),
            quoted_path(f"b/{self.path}"),
        )
        return "".join(
            line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
            for line in lines
        )


def quoted_path(path: str) -> str:
    """Return a path as git writes it in a patch: in quotes, with escapes, where a character could
    end the line or the name.
    """
    if re.fullmatch(r"[!#-\[\]-~]+", path):
        return path
    quoted = (
        chr(byte) if 0x20 <= byte < 0x7F and byte not in b'"\\' else f"\\{byte:03o}"
        for byte in path.encode("utf-8", "surrogateescape")
    )
    return f'"{"".join(quoted)}"'


def _lines(text: str) -> list[str]:
    """Return lines as git and compilers count them: only a line feed ends one."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class _Gate:
    """`before` goes above line `first` and `after` below line `last` (0-based, inclusive)."""

    first: int
    last: int
    before: str
    after: str
    rule: str


def fix_source(source: SourceText, matches: Iterable[Match]) -> Fix | None:
    """Return the file with its mechanical findings behind gates.

    The result is None where there is nothing to do, or where an edit would change NVIDIA's tokens.
    """
    if "\r" in source.text:
        return None  # a patch with mixed line ends does not apply
    view = View(source=source, context=Context())
    fixable = [match for match in matches if match.rule in FIXABLE and _is_open(match)]
    gates = _apart(sorted({gate for finding in fixable for gate in _mask_gate(view, finding)}))
    masks = [finding for finding in fixable if finding.use < 0 and _literal_mask(view, finding)]
    after = _with_gates(_with_masks(view, masks), gates)
    if masks:
        after = _with_mask_macro(after, _spelling(view, masks[0]))
    rules = (*(gate.rule for gate in gates), *("CU108" for _ in masks))
    if after == source.text or for_nvidia(after) != for_nvidia(source.text):
        return None
    return Fix(path=source.path, before=source.text, after=after, rules=tuple(sorted(rules)))


def _is_open(match: Match) -> bool:
    """Return true if both sides reach the match. Code in one side's arm was already reviewed."""
    return {"amd", "nvidia"} <= match.sides and match.gate is Gate.OPEN and match.shift == 0


def _mask_gate(view: View, match: Match) -> Iterator[_Gate]:
    """Yield the gate for the one `#define` of a mask that has 32 lanes on every side."""
    name = match.what if match.use >= 0 else ""
    defined = view.macros.get(name, ())
    if len(defined) != 1 or len(view.region(defined[0].start).reach) < len(SIDES):
        return
    if _FULL_MASK.fullmatch(defined[0].body[len(name) :].strip().strip("()")):
        line = view.line(defined[0].start) - 1
        wide = f"#if {_ROCM}\n#define {name} 0xffffffffffffffffull\n#else\n"
        yield _Gate(first=line, last=line, before=wide, after=_END, rule=match.rule)


def _apart(gates: list[_Gate]) -> list[_Gate]:
    """Return gates that do not overlap. Those of neighbouring lines and one kind become one."""
    gates_apart: list[_Gate] = []
    for gate in gates:
        previous = gates_apart[-1] if gates_apart else None
        if previous is None or gate.first > previous.last + 1:
            gates_apart.append(gate)
        elif gate.first > previous.last and gate.after == previous.after:
            gates_apart[-1] = _Gate(
                first=previous.first, last=gate.last, before=previous.before,
                after=previous.after, rule=previous.rule,
            )  # fmt: skip
        elif gate.first > previous.last:
            gates_apart.append(gate)
    return gates_apart


def _with_gates(text: str, gates: list[_Gate]) -> str:
    lines = _lines(text)
    if lines and not lines[-1].endswith("\n") and gates and gates[-1].last == len(lines) - 1:
        lines[-1] += "\n"
    for gate in reversed(gates):
        lines[gate.last] += gate.after
        lines[gate.first] = gate.before + lines[gate.first]
    return "".join(lines)


def _spelling(view: View, match: Match) -> str:
    literal = _FULL_MASK.search(view.source.text, match.start, match.end)
    return literal[0] if literal else ""


def _literal_mask(view: View, match: Match) -> bool:
    """Return true if the mask is the literal, outside a macro's body and spelled as the first."""
    return bool(_spelling(view, match)) and not any(
        directive.start <= match.start < directive.end for directive in view.directives
    )


def _with_masks(view: View, masks: list[Match]) -> str:
    text = view.source.text
    first = _spelling(view, masks[0]) if masks else ""
    for mask in sorted(masks, key=lambda mask: mask.start, reverse=True):
        match = _FULL_MASK.search(text, mask.start, mask.end)
        if match is not None and match[0] == first:
            text = text[: match.start()] + MASK + text[match.end() :]
    return text


def _with_mask_macro(text: str, spelling: str) -> str:
    """Insert the macro above all code, below the last unconditional #include there."""
    blanked = blank(text)
    depth, insertion, end = 0, 0, 0
    for directive in blanked.directives:
        if blanked.code[end : directive.start].strip():
            break
        depth += {"if": 1, "ifdef": 1, "ifndef": 1, "endif": -1}.get(directive.name, 0)
        if depth == 0 and directive.name in ("include", "endif", "pragma"):
            insertion = text.index("\n", directive.end) + 1
        end = directive.end
    macro = (
        f"#if {_ROCM}\n#define {MASK} 0xffffffffffffffffull\n#else\n"
        f"#define {MASK} {spelling}\n#endif\n"
    )
    return text[:insertion] + macro + text[insertion:]


def for_nvidia(text: str) -> tuple[str, ...]:
    """Return the words that nvcc's compiler reads, as far as that can be known.

    Arms that NVIDIA does not take are removed. Undecided ones keep their directives. `MASK` is
    replaced by its value where it was defined above. Literals come last.
    """
    view = View(source=SourceText(path=PurePosixPath("a.cu"), text=text), context=Context())
    open_chains = [
        chain for chain in view.reaches.chains if any("nvidia" in a.open for a in chain.arms)
    ]
    undecided = {arm.directive.start for chain in open_chains for arm in chain.arms}
    undecided |= {chain.end for chain in open_chains}
    words: list[str] = []
    mask, position = [MASK], 0
    last = Directive(name="", body="", start=len(text), end=len(text))
    for directive in (*view.directives, last):
        reached = "nvidia" in view.region(position).reach
        for word in _WORD.findall(view.code, position, directive.start) if reached else ():
            words += mask if word == MASK else (word,)
        position = directive.end
        retained = reached and directive.name[:2] not in ("if", "el", "en")
        name, _, body = directive.body.partition(" ")
        if directive.name == "define" and name == MASK and reached:
            mask = _WORD.findall(body)
        elif retained or undecided & {directive.start, position}:
            words += (f"#{directive.name}", *_WORD.findall(directive.body))
    spans = (
        literal for literal in view.blanked.literals if "nvidia" in view.region(literal[0]).reach
    )
    return (*words, *(text[slice(*span)] for span in spans))


_WORD = re.compile(r"\w+|[^\w\s]")
