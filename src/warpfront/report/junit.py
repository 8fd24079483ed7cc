"""JUnit XML of verifications, for CI systems that draw test reports. Pure.

JUnit knows passed, failure, error and skipped. `unavailable`, `emulated` and `undetermined` become
`<skipped type="unavailable">` and so on, so that none is drawn as a pass. The suite's properties
count every outcome (`outcome.emulated`), because the `skipped` attribute mixes them. No decision
about publishing may be made from this file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from xml.etree import ElementTree as ET

from warpfront.verify.results import Outcome, Verification
from warpfront.verify.verdict import count_outcomes, outcome_of

# Characters that XML 1.0 forbids, escaped or not (https://www.w3.org/TR/xml/#charsets).
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


_SKIPPED = (Outcome.SKIPPED, Outcome.UNAVAILABLE, Outcome.EMULATED, Outcome.UNDETERMINED)


def junit_xml(verifications: Iterable[Verification]) -> str:
    """Return one `<testsuite>` per session of each verification; times are seconds."""
    root = ET.Element("testsuites", name="warpfront verify")
    for verification in verifications:
        for session in verification.sessions:
            _add_suite(root, verification, session)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _add_suite(root: ET.Element, verification: Verification, session: str) -> None:
    checks = [check for check in verification.checks if check.session == session]
    counts = count_outcomes(checks)
    name = _clean(f"{verification.cell_id}.{verification.target}.{session}")
    suite = ET.SubElement(
        root,
        "testsuite",
        name=name,
        tests=str(len(checks)),
        failures=str(counts[Outcome.FAILED]),
        errors=str(counts[Outcome.ERROR]),
        skipped=str(sum(counts[outcome] for outcome in _SKIPPED)),
        time=f"{sum(check.seconds for check in checks):.4f}",
    )
    properties = ET.SubElement(suite, "properties")
    facts = {
        "outcome": outcome_of(verification).value,
        "where": verification.where,
        "image_id": verification.image_id,
        "content_hash": verification.content_hash,
        **{f"outcome.{outcome}": str(count) for outcome, count in counts.items()},
    }
    for fact, value in facts.items():
        ET.SubElement(properties, "property", name=fact, value=_clean(value))
    for check in checks:
        case = ET.SubElement(
            suite, "testcase", name=_clean(check.name), classname=name, time=f"{check.seconds:.4f}"
        )
        tag = {Outcome.FAILED: "failure", Outcome.ERROR: "error"}.get(check.outcome, "skipped")
        if check.outcome is not Outcome.PASSED:
            problem = ET.SubElement(
                case, tag, type=check.outcome.value, message=_clean(check.reason)
            )
            problem.text = _clean(check.reason)
        if check.details:
            text = json.dumps(dict(check.details), sort_keys=True, default=str)
            ET.SubElement(case, "system-out").text = _clean(text)


def _clean(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
