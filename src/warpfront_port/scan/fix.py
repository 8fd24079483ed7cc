"""Edits that let AMD through and leave NVIDIA's code as it is: lines put behind a gate. Pure.

Nothing is rewritten in place. An edit adds preprocessor lines, and each fixed file is compared with
the file before it. NVIDIA's compiler must read the same lines and definitions of both, or the file
is unchanged.
A finding that such an edit cannot settle (PTX, tensor cores, wave sizes) remains.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from warpfront_port.scan.cuda.view import View
from warpfront_port.scan.findings import SIDES, Context, Gate, Match, SourceText
from warpfront_port.scan.isolation import nvidia_lines

FIXABLE = frozenset({"CU108"})
MASK = "WARPFRONT_ALL_LANES"
_FULL_MASK = re.compile(r"0[xX][fF]{8}[uU]?\b")
_ROCM = "defined(USE_ROCM) || defined(__HIP_PLATFORM_AMD__) || defined(__HIP__)"
"""torch's builds define the first, builds with CMake and HIP's headers the second: above those only
the third is there, which clang defines for the language.
"""


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
class Edit:
    """`text` between two offsets, for a rule; "" for what another edit needs."""

    start: int
    end: int
    text: str
    rule: str


def edited(text: str, edits: Iterable[Edit]) -> str:
    """Return a text with edits that do not overlap."""
    for edit in sorted(edits, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def fix_source(source: SourceText, matches: Iterable[Match]) -> Fix | None:
    """Return the file with its mechanical findings behind gates.

    The result is None where there is nothing to do, or where an edit would change NVIDIA's code.
    """
    if "\r" in source.text:
        return None  # a patch with mixed line ends does not apply
    view = View(source=source, context=Context())
    # Code in one side's arm was already reviewed.
    fixable = [
        match
        for match in matches
        if match.rule in FIXABLE
        and {"amd", "nvidia"} <= match.sides
        and match.gate is Gate.OPEN
        and match.shift == 0
    ]
    edits = {edit for match in fixable for edit in _of_definition(view, match)}
    edits.update(_of_literals(view, [match for match in fixable if match.use < 0]))
    after = edited(source.text, edits)
    rules = tuple(sorted(edit.rule for edit in edits if edit.rule))
    # NVIDIA's value of the macro is the literal in whose place it is.
    mask = next((source.text[edit.start : edit.end] for edit in edits if edit.text == MASK), "")
    directives = _directives(source.text)
    if mask:
        directives[f"define {MASK} {mask}"] += 1
    texts = (text.replace(MASK, mask or MASK) for text in (source.text, after))
    old, new = (nvidia_lines(SourceText(path=source.path, text=text)) for text in texts)
    is_same = [step.text for step in old] == [step.text for step in new]
    if after == source.text or not is_same or _directives(after) != directives:
        return None
    return Fix(path=source.path, before=source.text, after=after, rules=rules)


_DEPTHS = {"if": 1, "ifdef": 1, "ifndef": 1, "endif": -1}


def _directives(text: str) -> Counter[str]:
    """Count the directives that NVIDIA's compiler follows, and the conditions that no line ends."""
    view = View(source=SourceText(path=PurePosixPath("a.cu"), text=text), context=Context())
    counts = Counter[str]()
    for directive in view.directives:
        if directive.name in _DEPTHS:
            counts["open"] += _DEPTHS[directive.name]
        elif directive.name[:2] != "el" and "nvidia" in view.region(directive.start).reach:
            counts[f"{directive.name} {' '.join(directive.body.split())}"] += 1
    return counts


def _of_definition(view: View, match: Match) -> Iterator[Edit]:
    """Yield the gate for the one `#define` of a mask that has 32 lanes on every side."""
    name = match.excerpt if match.use >= 0 else ""
    defined = view.macros.get(name, ())
    if len(defined) != 1 or len(view.region(defined[0].start).reach) < len(SIDES):
        return
    if _FULL_MASK.fullmatch(defined[0].body[len(name) :].strip().strip("()")):
        start = view.source.text.rfind("\n", 0, defined[0].start) + 1
        end = view.source.text.find("\n", defined[0].end - 1)
        line = view.source.text[start : end if end >= 0 else None]
        wide = f"#if {_ROCM}\n#define {name} 0xffffffffffffffffull\n#else\n{line}\n#endif"
        yield Edit(start=start, end=start + len(line), text=wide, rule=match.rule)


def _of_literals(view: View, matches: Iterable[Match]) -> Iterator[Edit]:
    """Yield a macro in place of each literal, outside of macros, that is spelled as the first."""
    masks = (_FULL_MASK.search(view.code, match.start, match.end) for match in matches)
    literals = [
        literal
        for literal in masks
        if literal and not any(d.start <= literal.start() < d.end for d in view.directives)
    ]
    for literal in literals:
        if literal[0] == literals[0][0]:
            yield Edit(start=literal.start(), end=literal.end(), text=MASK, rule="CU108")
    if literals:
        # Above all code, below the last unconditional #include there.
        depth, place, position = 0, 0, 0
        for directive in view.directives:
            if view.code[position : directive.start].strip():
                break
            depth += _DEPTHS.get(directive.name, 0)
            if depth == 0 and directive.name in ("include", "endif", "pragma"):
                place = view.source.text.index("\n", directive.end) + 1
            position = directive.end
        macro = (
            f"#if {_ROCM}\n#define {MASK} 0xffffffffffffffffull\n#else\n"
            f"#define {MASK} {literals[0][0]}\n#endif\n"
        )
        yield Edit(start=place, end=place, text=macro, rule="")
