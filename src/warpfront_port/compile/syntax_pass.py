"""The meaning of a compiler's syntax passes for a scan: findings, and uncompiled sources. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from typing import Any

from warpfront_port.compile.diagnostics import Diagnostic, Place, read_diagnostics
from warpfront_port.finding_forms import Scan
from warpfront_port.scan.catalogue import catalogue
from warpfront_port.scan.cuda.name_rows import rows_including
from warpfront_port.scan.findings import Gate, ScanFinding, Severity

REFUSED = "CC701"
"""The rule of a compiler's errors."""
LACKS = "warpfront: the environment lacks "
_NOT_FOUND = re.compile(r"'([^']+)' file not found")
_ABSENT = re.compile(r"warpfront: no environment has (\S+)")
# Rules whose claim the compiler checks; it does not read asm strings here.
_CHECKED = frozenset({"CU108", "CU135", "CU147", "CU149"})
_UNDECLARED = re.compile(r"(?:undeclared identifier|unknown type name|no type named) '(\w+)'")
_OF_A_PARSER = re.compile(
    r"expected |extraneous |unexpected |use 'template' keyword|template param"
)
_FOLLOWING = re.compile(
    r"undeclared|unknown type|no (?:type|member|template) named|incomplete type"
)
# A structure of HIP's own: no option of a build gives it another member.
_LESS_MEMBERS = re.compile(r"no member named '\w+' in '(?:struct )?hip[A-Z]\w*'")
_BUILT_IN = re.compile(r"'__\w+'")
_QUOTED = re.compile(r"'([A-Za-z_]\w*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntaxResult:
    """The result of a compiler's syntax passes. `compiler` is its version.

    `compiled` are the units that it accepted or refused for a reason of their own. `uncompiled`
    maps the others to the reason why they were not judged. `reached` are the units that the
    project's own build compiles, empty where no build was configured: `unconfigured` is why.
    `read` are the lines that a source compiled, by file, of files that no source stopped in or
    before. `configured` is true where the project's own build decides which lines those are.
    `unsure` are the units whose own build may have options without which they do not compile.
    """

    compiler: str
    findings: tuple[ScanFinding, ...]
    compiled: tuple[str, ...]
    uncompiled: Mapping[str, str]
    reached: frozenset[str] = frozenset()
    unconfigured: str = ""
    read: Mapping[str, AbstractSet[int]] = field(default_factory=dict)
    configured: bool = False
    unsure: frozenset[str] = frozenset()


def read_results(document: Mapping[str, Any], root: str) -> SyntaxResult:
    """Return the meaning of a job's results, whose paths are below `root` where the job ran."""
    findings: dict[tuple[str, int, str], ScanFinding] = {}
    named: set[tuple[str, int]] = set()
    compiled: list[str] = []
    uncompiled: dict[str, str] = {}
    unsure: set[str] = set()
    names, reached = document.get("hip") or {}, document.get("reached") or ()
    # What a build, or a package that is absent, may define.
    configured = bool(reached) and not document.get("unconfigured")
    own_names = frozenset(document.get("own") or ())
    defined = set() if configured else set(document.get("build_words") or ())
    defined |= set() if configured or document.get("by_python") else own_names
    stops = frozenset() if configured else frozenset(document.get("stops") or ())
    for entry in document.get("units") or ():
        errors: list[ScanFinding] = []
        lacking: list[str] = []
        undefined: list[str] = []
        diagnostics, related = _first_errors(str(entry["output"]), own_names, root)
        for diagnostic in diagnostics:
            undefined += _undefined(diagnostic, root, defined, stops)
            answer = _meaning(diagnostic, root, names)
            if isinstance(answer, str):
                lacking.append(answer)
            else:
                errors.append(answer)
        if undefined:  # its other errors may follow from that
            lacking, errors = undefined, []
        if errors and entry.get("is_native") and not configured:
            sure = [error for error in errors if _LESS_MEMBERS.search(error.message)]
            if not sure:
                reason = f"its own build for HIP was not configured: {errors[0].message[:80]}"
                lacking = [reason]
                unsure.add(entry["unit"])
            errors = sure
        if 124 in entry["codes"]:
            lacking.append("the compiler took longer than its limit")
        if any(entry["codes"]) and not errors and not lacking:
            lacking.append("the compiler ended without a diagnostic of this source")
        findings.update({(f.path, f.line, f.message): f for f in errors})
        named |= related if errors else set()
        if entry.get("is_host"):
            continue  # no GPU's compiler reads it: what its libraries lack decides nothing
        if lacking and not errors:
            uncompiled[entry["unit"]] = lacking[0]
        else:
            compiled.append(entry["unit"])
    return SyntaxResult(
        compiler=document.get("compiler") or "",
        findings=tuple(sorted([*findings.values(), *_notes(named, findings)])),
        compiled=tuple(compiled),
        uncompiled=uncompiled,
        reached=frozenset(reached),
        unconfigured=document.get("unconfigured") or "",
        read=_read(document, root, uncompiled),
        configured=configured,
        unsure=frozenset(unsure),
    )


def _read(
    document: Mapping[str, Any], root: str, uncompiled: Iterable[str]
) -> Mapping[str, AbstractSet[int]]:
    """Return the lines that sources compiled, of the files that each of them read to the end.

    What a witness cannot take is no error, and was not read.
    """
    read: dict[str, set[int]] = {}
    unread = set(uncompiled)
    for name in ("units", "witnesses"):
        for entry in document.get(name) or ():
            stopped = entry["unit"] in unread or ": fatal error: " in str(entry["output"])
            for path, lines in (entry.get("lines") or {}).items():
                read.setdefault(path, set()).update(lines)
                unread |= {path} if stopped or 124 in entry["codes"] else set()
            for diagnostic in read_diagnostics(entry["output"]) if name == "witnesses" else ():
                if diagnostic.severity == "error" and diagnostic.place:
                    unread.add(diagnostic.place.path.removeprefix(f"{root}/"))
    return {path: lines for path, lines in read.items() if path not in unread}


def _notes(
    named: AbstractSet[tuple[str, int]], errors: Iterable[tuple[str, int, str]]
) -> Iterator[ScanFinding]:
    """Yield a note for each file with lines that errors are about or lead to."""
    places = sorted(named - {error[:2] for error in errors})
    message = "declarations that errors are about, and lines that follow from errors"
    for path, lines in groupby(places, key=itemgetter(0)):
        numbers = tuple(line for _, line in lines)
        note = _finding(Place(path=path, line=numbers[0]), message, "", {})
        yield replace(note, severity=Severity.NOTE, uses=numbers)


def _first_errors(
    output: str, own_names: AbstractSet[str], root: str
) -> tuple[list[Diagnostic], set[tuple[str, int]]]:
    """Return the errors of a source that follow from no earlier one, and the places in the tree of
    the others and of the declarations that errors are about.

    A parser that lost its way misses what comes, and names that the tree declares (`own_names`).
    Where a header is missing, so is any name but the compiler's. A line's later errors follow too.
    """
    errors = [item for item in read_diagnostics(output) if item.severity == "error"]
    missing = False
    first: list[Diagnostic] = []
    related: list[Place] = []
    lines: set[tuple[str, int]] = set()
    for index, error in enumerate(errors):
        name, place = _UNDECLARED.search(error.message), _own_place(error, root)
        lost = _OF_A_PARSER.match(error.message) or (name is not None and name[1] in own_names)
        from_header = missing and _FOLLOWING.search(error.message)
        follows = (index > 0 and lost) or (from_header and not _BUILT_IN.search(error.message))
        related += error.declared
        if place and (follows or (place.path, place.line) in lines):
            related.append(place)
        elif not follows:
            first.append(error)
        lines |= {(place.path, place.line)} if place else set()
        missing = missing or _ABSENT.search(error.message) is not None
    inside = [place for place in related if place.path.startswith(f"{root}/")]
    return first, {(place.path.removeprefix(f"{root}/"), place.line) for place in inside}


def _undefined(
    diagnostic: Diagnostic, root: str, defined: AbstractSet[str], stops: AbstractSet[str]
) -> Iterator[str]:
    """Yield what a build that was not wholly configured may define: a name that build files have,
    or that the tree declares, perhaps behind a macro. Or what an `#error` at one of the places
    `stops` is about.
    """
    name, place = _UNDECLARED.search(diagnostic.message), diagnostic.place
    if place and f"{place.path}:{place.line}".removeprefix(f"{root}/") in stops:
        yield f"#error {diagnostic.message[:80]}, and its build was not wholly configured"
    if name and name[1] in defined:
        yield f"its build may define {name[1]}, and was not wholly configured"


def _own_place(diagnostic: Diagnostic, root: str) -> Place | None:
    """Return a diagnostic's place in the project, or that of the project's code that led to it."""
    places = (diagnostic.place, *diagnostic.via)
    return next((place for place in places if place and place.path.startswith(f"{root}/")), None)


def _meaning(diagnostic: Diagnostic, root: str, names: Mapping[str, str]) -> ScanFinding | str:
    """Return the project's error that a diagnostic is, or what the environment lacks."""
    message, place = diagnostic.message, _own_place(diagnostic, root)
    if LACKS in message:
        header = message.partition(LACKS)[2].strip("\"' ")
        return f"the toolchain has no {header}"
    absent, includer = _ABSENT.search(message), next(iter(diagnostic.included), None)
    if absent and includer and includer.path.startswith(f"{root}/"):
        return _absent(absent[1], _finding(includer, f"'{absent[1]}' file not found", root, names))
    if missing := absent or _NOT_FOUND.search(message):
        return f"{missing[1]} is not there"
    if place is None:
        where = diagnostic.place.path if diagnostic.place else "the compiler"
        return f"an error outside of the project: {where}: {message[:80]}"
    return _finding(place, message, root, names)


def _absent(header: str, finding: ScanFinding) -> ScanFinding:
    """Return the finding of a header that no toolchain for AMD has, by the rule that names it. The
    rule has its owner and its replacement. A library is one cause.
    """
    for rule in (catalogue()[row.rule] for row in rows_including(header)):
        message, library = rule.message.replace("{what}", header), header.partition("/")[0]
        return replace(finding, rule=rule.id, message=message, excerpt=message, cause=library)
    return finding


def _finding(place: Place, message: str, root: str, names: Mapping[str, str]) -> ScanFinding:
    plain = _QUOTED.sub(lambda m: f"'{names.get(m[1], m[1])}", message)
    plain = re.sub(r"; did you mean '[^']*'\?", "", plain)
    path = place.path.removeprefix(f"{root}/")
    column = max(place.column, 1)
    return ScanFinding(
        path=path,
        line=place.line,
        column=column,
        end_line=place.line,
        end_column=column + 1,
        rule=REFUSED,
        severity=Severity.ERROR,
        message=plain[:300],
        excerpt=plain[:200],
        cause=re.sub(r"<[^>]*>", "", plain)[:160],
    )


def with_syntax(scan: Scan, result: SyntaxResult) -> Scan:
    """Return a scan with a compiler's answers; rules whose claims it refutes become notes."""
    errors = (f for f in result.findings if f.severity is Severity.ERROR)
    lines = {(finding.path, finding.line) for finding in errors}
    uncompiled = {**scan.uncompiled, **result.uncompiled}
    uncompiled = {unit: uncompiled[unit] for unit in uncompiled if unit not in result.compiled}
    project = scan.project
    if result.reached:
        uncompiled = {unit: uncompiled[unit] for unit in uncompiled if unit in result.reached}
        unreached = frozenset(project.units) - result.reached
        basis = project.product.basis or "CMake"
        product = replace(project.product, unreached=unreached, basis=basis)
        project = replace(project, units=tuple(sorted(result.reached)), product=product)
    rest = (
        _checked(finding, result)
        for finding in scan.findings
        if not (finding.rule in _CHECKED and (finding.path, finding.line) in lines)
    )
    return replace(
        scan,
        project=project,
        unconfigured=result.unconfigured,
        findings=tuple(sorted([*rest, *result.findings])),
        compiled=result.compiled,
        uncompiled=uncompiled,
        compiler=result.compiler,
        unsure=result.unsure,
    )


def _checked(finding: ScanFinding, result: SyntaxResult) -> ScanFinding:
    """Return a finding as a compiler leaves it: a rule is no surer than the compiler is."""
    if _is_refuted(finding, result):
        return replace(finding, severity=Severity.NOTE, gate=Gate.COMPILED)
    is_unsure = finding.path in result.unsure and _is_claim(finding)
    return replace(finding, severity=Severity.WARNING) if is_unsure else finding


def _is_refuted(finding: ScanFinding, result: SyntaxResult) -> bool:
    """Return whether a compiler took all lines of a rule's finding, and found no error there.

    A line behind a condition that no pass met is not taken, unless the project's own build does
    not compile it.
    """
    lines = result.read.get(finding.path)
    is_read = lines is not None and (result.configured or lines >= {finding.line, *finding.uses})
    return is_read and _is_claim(finding)


def _is_claim(finding: ScanFinding) -> bool:
    return finding.rule in _CHECKED and finding.severity is not Severity.NOTE


def claims_of(scan: Scan) -> Sequence[str]:
    """Return the files that decide, with findings that a compiler can refute."""
    product = scan.project.product
    claims = {finding.path for finding in scan.findings if _is_claim(finding)}
    return sorted(path for path in claims if product.has(path) and not product.is_aside(path))


def native_units(scan: Scan) -> Sequence[str]:
    """Return the units that the project's own build compiles as HIP: CUDA's names stay theirs."""
    if not scan.project.builds_hip:
        return ()
    amds = {path for path, item in scan.evidence.items() if item.kind == "amd"}
    return sorted(amds.union(scan.project.hips).intersection(scan.project.units))


def that_may_decide(scan: Scan, sources: Iterable[str]) -> Sequence[str]:
    """Return those of `sources` that no evidence excludes from AMD's build."""
    aside = ("left-out", "optional", "aside")
    return [
        source
        for source in sources
        if (evidence := scan.evidence.get(source)) is None or evidence.kind not in aside
    ]
