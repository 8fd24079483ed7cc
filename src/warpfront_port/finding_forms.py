"""The verdict and findings of a scan as people, code hosts and programs read them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from warpfront.report import sarif
from warpfront.system.packaged import packaged_toml
from warpfront.system.texts import counted as plural
from warpfront.system.texts import markdown_table, markdown_text
from warpfront.system.tree_files import UnreadFile
from warpfront_port.scan.catalogue import Rule
from warpfront_port.scan.findings import Consequence, Evidence, ScanFinding, Severity
from warpfront_port.scan.project import Project
from warpfront_port.scan.verdict import Taken, Verdict, VerdictAnswer, consequence_of

UNPARSED = "SC003"
"""The rule that reports a file whose text cannot be parsed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """The result of a scan of a tree.

    `findings` are in the order of path and line; `unread` are the files and folders that were not
    read; `evidence` shows by path which files run on AMD already. `compiled` are the units that a
    compiler for the target accepted or refused, `uncompiled` maps the others to the reason.
    `unconfigured` is why CMake did not configure the project, "" where it did or was not run.
    `unsure` are units of a build for HIP that a compiler refused without that build's options.
    `unread_sources` is why the tree's own sources give no grounds, "" where they do.
    """

    target: str
    findings: tuple[ScanFinding, ...]
    unread: tuple[UnreadFile, ...]
    files: int
    lines: int
    suppressed: int
    project: Project = field(default_factory=Project)
    evidence: Mapping[str, Evidence] = field(default_factory=dict)
    compiled: tuple[str, ...] = ()
    uncompiled: Mapping[str, str] = field(default_factory=dict)
    compiler: str = ""
    unconfigured: str = ""
    unread_sources: str = ""
    unsure: frozenset[str] = frozenset()


FILES_SHOWN = 5
PLACES_SHOWN = 3
CAUSES_SHOWN = 12
"""Causes of one consequence in the text; `--all` lists all."""
ANNOTATIONS_SHOWN = 50
"""Code hosts show few annotations for a step; the rest is in the other forms."""

_TEXTS = packaged_toml("findings.toml", package="warpfront_port")
_TITLES = {Consequence(name): title for name, title in _TEXTS["consequences"].items()}


def counted(findings: Iterable[ScanFinding]) -> str:
    """Return `3 errors, 1 warning`, or `no findings` for none."""
    counts = totals(findings)
    words = [plural(count, name.removesuffix("s")) for name, count in counts.items() if count]
    return ", ".join(words) or "no findings"


def totals(findings: Iterable[ScanFinding]) -> dict[str, int]:
    """Return how many findings of each severity there are."""
    counts = Counter(finding.severity for finding in findings)
    kinds = (Severity.ERROR, Severity.WARNING, Severity.NOTE)
    return {f"{kind.value}s": counts[kind] for kind in kinds}


def verdict_text(verdict: Verdict, scan: Scan, *, everything: bool = False) -> str:
    """Return the verdict for a terminal: the answer first, then causes by consequence."""
    low, high = verdict.size.hours
    most, few = (None, None) if everything else (CAUSES_SHOWN, PLACES_SHOWN)
    lines = [verdict.line, f"way: {verdict.project.way}"]
    if verdict.causes:
        lines.append(
            f"size: {plural(verdict.size.files, 'file')}, {plural(verdict.size.causes, 'cause')}, "
            f"{low:g} to {high:g} hours ({verdict.size.basis})"
        )
    units = plural(len(verdict.project.units), noun_of(verdict.project))
    if scan.compiler:
        lines.append(f"compiled: {len(scan.compiled)} of {units} by {scan.compiler}")
    elif verdict.project.units:
        amds = {path for path, item in scan.evidence.items() if item.kind in _OF_AMD}
        count = len(amds.intersection(verdict.project.units))
        because = f"; {count} taken for AMD's" if count else ""
        lines.append(f"compiled: none of {units}{because}")
    if scan.unconfigured:
        lines.append(f"not configured: {scan.unconfigured}")
    if verdict.project.product.basis:
        lines.append(f"reached: {units}, by {verdict.project.product.basis}")
    if unbuilt := verdict.project.unbuilt:
        first = ", ".join(unbuilt[:PLACES_SHOWN]) + (", ..." if unbuilt[PLACES_SHOWN:] else "")
        lines.append(f"not built, so not judged: {plural(len(unbuilt), 'CUDA source')}: {first}")
    of_units = {unit: e for unit in verdict.project.units if (e := scan.evidence.get(unit))}
    lines += [
        f"left out: {plural(source.files, 'source')}, because {source.place}: {source.reason}"
        for source in taken_of(of_units, ("left-out", "optional"))[:few]
    ]
    lines += [
        f"taken for AMD's: {plural(source.files, 'file')}, because {source.place}: {source.reason}"
        for source in verdict.taken[:few]
    ]
    if verdict.answer is not VerdictAnswer.UNDETERMINED or len(verdict.reasons) > 1:
        lines += [f"not determined: {reason}" for reason in verdict.reasons[:PLACES_SHOWN]]
    for consequence, title in _TITLES.items():
        causes = verdict.of(consequence)
        if causes:
            lines += ["", f"{title} ({len(causes)})"]
            fixes: set[str] = set()
            for cause in causes[:most]:
                places = ", ".join(cause.places[:few])
                hidden = len(cause.places) - len(cause.places[:few])
                more = f", ... {hidden} more" if hidden else ""
                uses = f" ({cause.uses} uses)" if cause.uses > 1 else ""
                suffix = f" [taken for AMD's: {', '.join(cause.taken[:2])}]" if cause.taken else ""
                lines.append(f"  {cause.rule} {cause.message}{uses}: {places}{more}{suffix}")
                if cause.rule not in fixes and (everything or consequence is not Consequence.CHECK):
                    lines.append(f"        {cause.fix}")
                fixes.add(cause.rule)
            if hidden := len(causes) - len(causes[:most]):
                lines.append(f"  ... and {hidden} more (--all lists them)")
    lines += _rename_lines(verdict.project, everything=everything)
    return "\n".join(lines) + "\n"


def noun_of(project: Project) -> str:
    """Return the word for one of a project's units."""
    languages = {"HIP" if unit in project.hips else "CUDA" for unit in project.units}
    return f"{' or '.join(sorted(languages)) or 'CUDA'} source"


def _rename_lines(project: Project, *, everything: bool) -> Iterator[str]:
    """Yield one line about names that only have to be renamed, then one a file."""
    renames = sorted(project.renames, key=lambda rename: (-rename.uses, rename.path))
    names, uses = sum(r.names for r in renames), sum(r.uses for r in renames)
    listed = renames if everything else renames[:FILES_SHOWN]
    if names:
        files = plural(len(renames), "file")
        yield ""
        used = f"{plural(names, 'CUDA name')} ({plural(uses, 'use')})"
        yield f"names: {used} in {files}, all have twins in HIP"
    for rename in listed:
        yield f"  {rename.path}: {plural(rename.names, 'name')} ({plural(rename.uses, 'use')})"
    if len(listed) < len(renames):
        more = plural(len(renames) - len(listed), "more file")
        yield f"  ... and {more} (--all lists them)"


def verdict_json(verdict: Verdict) -> dict[str, object]:
    """Return the verdict as JSON values."""
    own = verdict.project  # without the commands of its builds
    shown = Project(units=own.units, way=own.way, renames=own.renames)
    facts = asdict(replace(verdict, project=shown))
    project = facts.pop("project")
    return {
        **facts,
        "line": verdict.line,
        "counts": {key.value: len(verdict.of(key)) for key in Consequence},
        "way": project["way"],
        "units": project["units"],
        "renames": project["renames"],
    }


_OF_AMD = ("amd",)


def taken_of(
    evidence: Mapping[str, Evidence], kinds: Container[str] = _OF_AMD
) -> tuple[Taken, ...]:
    """Return the number of files behind each place of evidence of some kinds, largest first."""
    places = Counter((item.place, item.reason) for item in evidence.values() if item.kind in kinds)
    ordered = sorted(places.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Taken(files=n, place=place, reason=reason) for (place, reason), n in ordered)


def undetermined_files(scan: Scan) -> tuple[str, ...]:
    """Return `path: reason` for each file and folder that the scan could not read or parse."""
    product = scan.project.product
    runs = product.installs or any("/" not in path for path in product.lines)
    unread = [file for file in scan.unread if not file.left_out and not file.path.endswith(_DATA)]
    unparsed = [finding for finding in scan.findings if finding.rule == UNPARSED]
    return (
        *(f"{file.path}: {file.reason}" for file in unread),
        *(f"{f.path}: {f.message}" for f in unparsed if not (runs and f.path.endswith(_DATA))),
    )


_DATA = (".json", ".yaml", ".yml", ".ipynb")
"""Files of these kinds hold settings at most: one that is too long or broken for that is data."""


def scan_summary(scan: Scan, fresh: Sequence[ScanFinding]) -> str:
    """Return a summary of the scan and its result in a line or two."""
    accepted = len(scan.findings) - len(fresh)
    unknown = len(undetermined_files(scan))
    left_out = sum(file.left_out for file in scan.unread)
    facts = [
        f"{counted(fresh)} for {scan.target} in {plural(scan.files, 'file')} ({scan.lines} lines)",
        f"{scan.suppressed} suppressed by comments" if scan.suppressed else "",
        f"{accepted} accepted by the baseline" if accepted else "",
        f"{plural(unknown, 'file')} not determined (--json lists them)" if unknown else "",
        f"{plural(left_out, 'folder')} left out (--json lists them)" if left_out else "",
    ]
    return "; ".join(fact for fact in facts if fact) + "\n"


def verdict_markdown(verdict: Verdict) -> str:
    """Return the verdict for a pull request or a step: one row a cause."""
    lines = [
        f"### Scan: {markdown_text(verdict.line)}",
        "",
        f"Way: {markdown_text(verdict.project.way)}",
    ]
    lines += [f"Not determined: {markdown_text(reason)}" for reason in verdict.reasons]
    rows = [
        (
            _TITLES[cause.consequence],
            cause.rule,
            cause.message,
            str(cause.uses),
            ", ".join(cause.places[:PLACES_SHOWN]),
            cause.fix,
        )
        for cause in verdict.causes
    ]
    heads = ("consequence", "rule", "what", "uses", "where", "fix")
    lines += ["", *markdown_table(heads, rows)] if rows else []
    return "\n".join(lines) + "\n"


_IN_COMMANDS = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_IN_PROPERTIES = _IN_COMMANDS | str.maketrans({":": "%3A", ",": "%2C"})


def annotation_lines(findings: Iterable[ScanFinding], rules: Mapping[str, Rule]) -> str:
    """Return GitHub's workflow commands, errors first, as many as it shows
    (https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands).
    """
    kinds = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}
    ordered = sorted(findings, key=lambda finding: (-finding.severity.level, finding))
    lines = []
    for finding in ordered[:ANNOTATIONS_SHOWN]:
        place = {
            "file": finding.path,
            "line": str(finding.line),
            "endLine": str(finding.end_line),
            "col": str(finding.column),
            "title": f"{finding.rule} {rules[finding.rule].title}",
        }
        escaped = {name: value.translate(_IN_PROPERTIES) for name, value in place.items()}
        properties = ",".join(f"{name}={value}" for name, value in escaped.items())
        text = f"{finding.message}\nfix: {rules[finding.rule].fix}".translate(_IN_COMMANDS)
        lines.append(f"::{kinds[finding.severity]} {properties}::{text}\n")
    return "".join(lines)


def findings_json(
    findings: Iterable[ScanFinding], rules: Mapping[str, Rule], project: Project
) -> list[dict[str, object]]:
    """Return one object per finding, in their order."""
    return [
        {
            **asdict(finding),
            "consequence": consequence_of(finding, rule, project).value,
            "uses": list(finding.uses),
            "fingerprint": finding.fingerprint,
            "phase": rule.phase,
            "fix": rule.fix,
        }
        for finding in findings
        for rule in (rules[finding.rule],)
    ]


def verdict_sarif(
    verdict: Verdict,
    findings: Iterable[ScanFinding],
    rules: Mapping[str, Rule],
    *,
    unread: Iterable[str] = (),
) -> str:
    """Return SARIF 2.1.0 with the rules that occur, the verdict as a notification."""
    listed = tuple(findings)
    sarif_rules = []
    for rule in (rules[name] for name in sorted({finding.rule for finding in listed})):
        sources = "\n".join(f"- {source}" for source in rule.sources)
        text = f"{rule.why}\n\n**Fix:** {rule.fix}\n\nSources:\n{sources}\n"
        sarif_rules.append(sarif.SarifRule(id=rule.id, summary=rule.title, help=text))
    return sarif.sarif_text(
        map(sarif_finding, listed),
        rules=sarif_rules,
        tool="warpfront-scan",
        unknown=(verdict.line, *verdict.reasons, *unread),
    )


def sarif_finding(finding: ScanFinding) -> sarif.SourceFinding:
    """Return one finding for SARIF, with its gate in words."""
    gate = _TEXTS["gates"].get(finding.gate, "")
    words = gate.format(line=finding.gate_line, taken=finding.taken)
    return sarif.SourceFinding(
        rule_id=finding.rule,
        message=f"{finding.message} ({words})" if words else finding.message,
        path=finding.path,
        line=finding.line,
        column=finding.column,
        end_line=finding.end_line,
        end_column=finding.end_column,
        level=_LEVELS.get(finding.severity, "note"),
        source=finding.excerpt,
        properties={"gate": finding.gate.value},
    )


_LEVELS: Mapping[Severity, sarif.Level] = {Severity.ERROR: "error", Severity.WARNING: "warning"}
