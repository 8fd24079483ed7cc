"""What a measurement of one case comes to, and whether that is what was expected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from adversary.cases import Case
from adversary.stacks import SITE_PACKAGES, Stack

GUARD_SAYS = "warpfront guard: "
_FEW = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`outcome` is `intact`, `refused`, `detected`, `relaxed` (changed, on record), or what must
    not be: `silent` (the stack was changed or hidden and nobody says so) and `broken` (the run
    itself went wrong).

    `by` is who detects: `import`, `verify`. `happened` says what became of the stack, "" = nothing.
    """

    outcome: str
    by: tuple[str, ...] = ()
    happened: str = ""
    said: str = ""

    def __str__(self) -> str:
        by = f" by {' and '.join(self.by)}" if self.by else ""
        return f"{self.outcome}{by}" + (f" ({self.happened})" if self.happened else "")


def judged(measured: Mapping[str, Any], stack: Stack) -> Verdict:
    """The verdict on a measurement that `inside.py` made."""
    if "error" in measured:
        return Verdict(outcome="broken", happened=str(measured["error"])[-800:])
    happened = what_happened(measured, stack)
    by, said = detection(measured, stack)
    if by:
        return Verdict(outcome="detected", by=by, happened=happened, said=said)
    if happened and "torch" in measured["relaxed"]:
        return Verdict(outcome="relaxed", happened=happened, said=str(measured["said"]))
    if happened:
        return Verdict(outcome="silent", happened=happened, said=str(measured["said"]))
    outcome = "refused" if measured["exit_code"] else "intact"
    return Verdict(outcome=outcome, said=str(measured["said"]))


def what_happened(measured: Mapping[str, Any], stack: Stack) -> str:
    """What became of the stack, by the runner's own measurement; "" = it is as it was, is what
    `import torch` gives and runs, and nothing of another vendor came to it.
    """
    parts = []
    counts = measured["changed_counts"]
    if counts:
        parts.append(", ".join(f"{number} files {kind}" for kind, number in sorted(counts.items())))
        if len(measured["changed"]) <= _FEW:
            parts.append(", ".join(measured["changed"]))
    probe = measured["probe"]
    if probe["ok"] and _elsewhere(probe, stack):
        parts.append(f"torch comes from {probe['file']}")
    if strangers := probe.get("strangers"):
        parts.append(f"runs {', '.join(strangers)} in the place of torch's own")
    if not probe["ok"] and GUARD_SAYS not in probe["error"]:
        parts.append(f"import fails: {probe['error'][-300:]}")
    if measured["built"] not in (None, stack.torch, stack.imported or stack.torch):
        parts.append(f"built against torch {measured['built']}")
    return "; ".join(parts)


def _elsewhere(probe: Mapping[str, Any], stack: Stack) -> bool:
    version = probe["version"]
    if probe["file"] != f"{SITE_PACKAGES}/torch/__init__.py":
        return True
    return version is not None and not str(version).startswith(stack.public)


def detection(measured: Mapping[str, Any], stack: Stack) -> tuple[tuple[str, ...], str]:
    """Who says that something is wrong, and what: an import that is refused, or that warns of a
    torch which is not the image's, or `verify`. What `verify` had to say before the case began
    does not count.
    """
    by, said = [], []
    probe, verify = measured["probe"], measured["verify"]
    if not probe["ok"] and GUARD_SAYS in probe["error"]:
        by.append("import")
        said.append(probe["error"])
    elif probe["ok"] and probe["told"] and _elsewhere(probe, stack):
        by.append("import")
        said += probe["told"]
    findings = [one for one in verify["findings"] if one not in measured["known"]]
    if verify["state"] == "findings" and findings:
        by.append("verify")
        said += findings
    return tuple(by), "\n".join(said)


def problem(case: Case, tool: str, stack: Stack, verdict: Verdict) -> str:
    """What is wrong with a verdict, "" = it is what the case expects, with the text it expects."""
    expected = case.expected(stack.kind, tool)
    if verdict.outcome != expected:
        return f"expected {expected}, it is {verdict}\n{verdict.said[-1500:]}"
    if verdict.outcome in ("intact", "relaxed"):
        return ""
    texts = [stack.fill(text) for text in case.texts(stack.kind, tool)]
    if not texts:
        texts = refusal_texts(tool, stack) if expected == "refused" else []
    said = " ".join(verdict.said.split())
    if texts and not any(" ".join(text.split()) in said for text in texts):
        return f"{verdict.outcome}, and says none of {texts}\n{verdict.said[-1500:]}"
    return ""


def refusal_texts(tool: str, stack: Stack) -> list[str]:
    """What every refusal must show one of: the guard's own words; in a uv that the image did not
    bring, uv's with the torch that stays, or the reason in a sentinel's label.
    """
    if tool == "uv":  # which writes === as ==
        return [GUARD_SAYS, stack.pin.replace("===", "=="), "==0+"]
    return [GUARD_SAYS]


def is_worse(verdict: Verdict, than: Verdict) -> bool:
    """Whether less is left of the guard's protection: nothing refused, later or by fewer noticed,
    or a package refused that could be had. A container that went wrong shows nothing.
    """
    return verdict.outcome != "broken" and _rank(verdict) < _rank(than)


def _rank(verdict: Verdict) -> tuple[int, int]:
    if verdict.outcome == "detected":
        return (1, 2 * ("import" in verdict.by) + ("verify" in verdict.by))
    return (
        {"intact": 3, "refused": 2, "relaxed": 1, "silent": 0, "broken": -1}[verdict.outcome],
        0,
    )
