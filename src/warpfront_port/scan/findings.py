"""The values of a scan: matches of an engine, and findings for one target. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Final, Literal, get_args


class Severity(StrEnum):
    """The severity of a finding. The words are SARIF's levels, so no table has to translate."""

    NONE = "none"
    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"

    @property
    def level(self) -> int:
        """Return 0 for none to 3 for an error."""
        return tuple(Severity).index(self)

    def shifted(self, levels: int) -> Severity:
        """Return the severity `levels` worse (or better, where negative).

        None stays none, and a finding stays at least a note.
        """
        if self is Severity.NONE:
            return self
        return tuple(Severity)[min(max(self.level + levels, 1), 3)]


class Consequence(StrEnum):
    """The effect of an error on the target."""

    BUILD = "build"
    """It does not build or install."""
    WRONG = "wrong"
    """It runs, and may compute other numbers."""
    RUNTIME = "runtime"
    """It stops when it runs."""
    CHECK = "check"
    """It is slower, or does without something."""


class Gate(StrEnum):
    """The kind of condition between a target and the code of a match."""

    OPEN = "open"
    """Nothing, or nothing that was recognised."""
    UNREACHED = "unreached"
    """Only other vendors' devices come here: no finding."""
    OWN_ARM = "own-arm"
    """The branch that only this target's vendor reaches: what only may be wrong is a note."""
    AVAILABILITY = "availability"
    """It runs only where a package or device was found: a warning at most."""
    OPTION = "option"
    """It runs only where an environment variable asks for it: a warning at most."""
    CALLED = "called"
    """It runs only where a function of the project is called: severities stay."""
    WRAPPED = "wrapped"
    """A header of the project gives the name another meaning on AMD: a note."""
    TEST = "test"
    """Test code, documentation, how examples are set up, the project's own CI, packaging that is
    named for NVIDIA: a note.
    """
    LEFT_OUT = "left-out"
    """AMD's build of the project leaves the file out, or has a copy in its place: a note."""
    OPTIONAL = "optional"
    """The project's build or code goes on without this file: one level lower."""
    TAKEN = "taken"
    """The file shows that it already runs on AMD: one level lower."""
    COMPILED = "compiled"
    """A compiler for the target takes the line: a note."""


Side = Literal["nvidia", "amd", "other"]
MacroValue = Literal["set", "unset", "open"] | int | None
"""What is known of a macro: "open" is defined with a value that is not known, None is nothing."""
SIDES: Final[tuple[Side, ...]] = get_args(Side)


EvidenceKind = Literal["amd", "left-out", "optional", "aside"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Why one file counts as AMD's ("amd"), as one that AMD's build leaves out, as one without
    which the project runs ("optional"), or as an example, benchmark or test that it does not reach
    ("aside").

    `path` and `line` (1-based) are the place that shows it, `reason` a noun phrase.
    """

    kind: EvidenceKind
    path: str
    line: int
    reason: str

    @property
    def place(self) -> str:
        """Return `path:line`."""
        return f"{self.path}:{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A match of a rule in a file, before it is judged for a target.

    `start` and `end` are offsets into the source's text, in characters, end exclusive. `excerpt` is
    the matched code, for the rule's message (`{what}`). `shift` makes this match worse (1) or
    better (-1) than its rule's severity. `sides` are those that can reach this code. Without "amd"
    it is no finding for AMD; with "amd" alone it is NVIDIA code in AMD's arm. "other" is every
    device that is neither: CPU, Gaudi. `gate` is one that softens (availability, wrapped, test) or
    open. `gate_line` is the 1-based line of the condition that decided either, 0 where there is
    none. `use` is the offset of a use, where `start` is a definition behind several uses. `key`
    names the cause: matches of one rule with equal keys are one cause; `excerpt` where empty.
    """

    rule: str
    start: int
    end: int
    excerpt: str = ""
    shift: int = 0
    sides: frozenset[Side] = frozenset(SIDES)
    gate: Gate = Gate.OPEN
    gate_line: int = 0
    use: int = -1
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceText:
    """The text of one file. `path` is relative to the root of the tree, with `/`."""

    path: PurePosixPath
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Facts for engines from outside the file that they read.

    `own_headers` are the names of its files of code. `portable_names` are macros and functions that
    some header of the tree defines for AMD as well. `vendor_macros` are those that its headers
    define on some sides only; "unset" is all that is known there, and a number has no meaning.
    `is_hipified` is true where torch's build renames its macros. `takes_whole_waves` is true where
    a file names the device's width, or takes lanes by it. `own_packages` are the Python packages
    that the tree itself is the source of. `evidence` shows by path which files run on AMD already.
    `started` are the functions that scripts at the root call.
    """

    own_headers: frozenset[str] = frozenset()
    portable_names: frozenset[str] = frozenset()
    vendor_macros: Mapping[str, Mapping[Side, MacroValue]] = field(default_factory=dict)
    is_hipified: bool = False
    takes_whole_waves: bool = True
    own_packages: frozenset[str] = frozenset()
    evidence: Mapping[str, Evidence] = field(default_factory=dict, repr=False)
    started: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class ScanFinding:
    """The result of one match for one target.

    Lines and columns are 1-based, columns count characters, the end is exclusive. `excerpt` is the
    first line of the code, white space collapsed. `uses` are lines behind one definition. `taken`
    is the place (`path:line`) that shows the file to run on AMD already. `cause` is equal for
    findings of one cause.
    """

    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    rule: str
    severity: Severity
    message: str
    gate: Gate = Gate.OPEN
    gate_line: int = 0
    excerpt: str = ""
    uses: tuple[int, ...] = ()
    taken: str = ""
    cause: str = ""

    @property
    def fingerprint(self) -> str:
        """Return 20 hex digits over the rule and the line's text.

        They stay the same when the line moves or the file is renamed. Equal lines share one
        fingerprint, so comparisons count them.
        """
        facts = f"{self.rule}\0{self.excerpt}"
        return hashlib.sha256(facts.encode("utf-8", "surrogatepass")).hexdigest()[:20]
