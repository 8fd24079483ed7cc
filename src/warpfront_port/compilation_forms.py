"""The results of compilers on a source tree, for people, code hosts and programs. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from warpfront.report import sarif
from warpfront.verify.results import Outcome
from warpfront.verify.verdict import outcome_of
from warpfront_port.compile.outcomes import Compilation, Message
from warpfront_port.finding_forms import sarif_finding
from warpfront_port.scan.catalogue import Rule
from warpfront_port.scan.findings import ScanFinding

_SHOWN = 8
_HELP = "The message is the compiler's own; it says what has to change for this target."
_ORDER = (Outcome.PASSED, Outcome.FAILED, Outcome.UNAVAILABLE, Outcome.ERROR, Outcome.SKIPPED)


def compilation_text(compiled: Compilation, rules: Mapping[str, Rule]) -> str:
    """Return one line per source with its messages below it, hipify's findings, and
    counts of outcomes.
    """
    verification = compiled.verification
    lines = [f"compile for {verification.target} in {compiled.place}"]
    lines += [f"  {note}" for note in compiled.notes]
    by_unit: dict[str, list[Message]] = {}
    for message in compiled.messages:
        by_unit.setdefault(message.unit, []).append(message)
    for check in verification.checks:
        seconds = check.details.get("compile_seconds")
        took = f" ({seconds:.2f} s)" if isinstance(seconds, float) else ""
        messages = by_unit.get(check.name, [])
        reason = f": {check.reason}" if check.reason and not messages else ""
        lines.append(f"{check.outcome.value:<11} {check.name}{took}{reason}")
        lines += [f"    {message}" for message in messages[:_SHOWN]]
        if len(messages) > _SHOWN:
            lines.append(f"    ... and {len(messages) - _SHOWN} more")
    if compiled.left:
        lines += ["", "what hipify leaves, and says nothing of:"]
        # One line a rule with the first places, errors first.
        by_rule: dict[str, list[ScanFinding]] = {}
        for finding in sorted(
            compiled.left, key=lambda finding: (finding.severity != "error", finding)
        ):
            by_rule.setdefault(finding.rule, []).append(finding)
        for rule, rule_findings in by_rule.items():
            places = ", ".join(f"{finding.path}:{finding.line}" for finding in rule_findings[:3])
            more = f", ... {len(rule_findings) - 3} more" if len(rule_findings) > 3 else ""
            lines.append(
                f"  {rule_findings[0].severity} {rule} {rules[rule].title}: {places}{more}"
            )
    counts = Counter(check.outcome for check in verification.checks)
    words = [f"{counts[outcome]} {outcome.value}" for outcome in _ORDER if counts[outcome]]
    outcome = outcome_of(verification).value
    lines.append(f"{outcome}: {', '.join(words)} in {verification.seconds:.1f} s")
    return "\n".join(lines) + "\n"


def compilation_sarif(compiled: Compilation, rules: Mapping[str, Rule]) -> str:
    """Return SARIF 2.1.0.

    Messages are instances of `error` and `warning` of the compiler's target; the findings after
    hipify are instances of the scanner's rules. Sources that no compiler saw are notifications.
    """
    target = compiled.verification.target
    names = {"error": f"compile-{target}", "warning": f"compile-{target}-warning"}
    messages = [
        sarif.SourceFinding(
            rule_id=names[message.severity],
            message=message.text,
            path=message.path,
            line=message.line,
            column=message.column,
            level=message.severity,
        )
        for message in compiled.messages
    ]
    sarif_rules = [
        sarif.SarifRule(id=name, summary=f"The compiler's {word} for {target}", help=_HELP)
        for word, name in names.items()
    ]
    sarif_rules += [
        sarif.SarifRule(id=name, summary=rules[name].title, help=rules[name].fix)
        for name in sorted({finding.rule for finding in compiled.left})
    ]
    unknown = [
        f"{check.name} for {target}: {check.outcome}: {check.reason}"
        for check in compiled.verification.checks
        if check.outcome not in {Outcome.PASSED, Outcome.FAILED}
    ]
    return sarif.sarif_text(
        [*messages, *map(sarif_finding, compiled.left)],
        rules=sarif_rules,
        tool="warpfront-compile",
        unknown=unknown,
    )
