"""The work of the architectures' children: a type of model in every requested mode."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from typing import Any

from warpfront_checks.architectures.architecture_runs import (
    FedModel,
    document_of,
    judge_pass,
    prepare,
)
from warpfront_checks.architectures.small_models import NotBuiltError
from warpfront_checks.architectures.using import USES
from warpfront_checks.precision import DTYPES, require_full_precision
from warpfront_checks.results import (
    ERROR,
    FAILED,
    UNAVAILABLE,
    CheckFinding,
    finding_from,
    judged,
    passed,
    unavailable,
)

# Nothing is fetched, and a library's progress bars are for people.
QUIET = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
}


def try_item(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the finding of one architecture, with an outcome for each mode."""
    warnings.simplefilter("ignore")
    require_full_precision()
    start = time.monotonic()
    try:
        prepared_model = prepare(item["architecture"], item["seed"], item["patience"])
    except NotBuiltError as error:
        return vars(unavailable(str(error), modes={}))
    prepared = round(time.monotonic() - start, 3)
    modes = {mode: _mode(prepared_model, mode, item["device"]) for mode in item["modes"]}
    return {**vars(_summed(modes)), "details": {"modes": modes, "prepared_seconds": prepared}}


def _mode(fed_model: FedModel, mode: str, device: str) -> dict[str, Any]:
    start = time.monotonic()
    try:
        finding = _found(fed_model, mode, device)
    except Exception as error:  # noqa: BLE001 - what a model raises in one mode is that mode's result
        finding = CheckFinding(outcome=ERROR, reason=finding_from(error).reason)
    result = {"outcome": finding.outcome, "reason": finding.reason, **finding.details}
    return {**result, "seconds": round(time.monotonic() - start, 3)}


def _found(fed_model: FedModel, mode: str, device: str) -> CheckFinding:
    if mode not in DTYPES:
        return USES[mode](fed_model, device)
    judgement = judge_pass(fed_model, device, DTYPES[mode])
    document = document_of(fed_model, judgement)
    if not judgement.layers and judgement.whole:
        return unavailable(f"nothing could be judged: {judgement.whole}", **document)
    return judged([document["fault"]] if document["fault"] else [], **document)


def _summed(modes: Mapping[str, Mapping[str, Any]]) -> CheckFinding:
    """Return the worst of the modes, and its reason with its mode's name."""
    for worst in (ERROR, FAILED, UNAVAILABLE):
        for mode, result in modes.items():
            # What a class does not do, generating say, is no fault of the device's.
            if result["outcome"] == worst and not (worst == UNAVAILABLE and mode in USES):
                return CheckFinding(outcome=worst, reason=f"{mode}: {result['reason']}")
    first: Mapping[str, Any] = next((m for m in modes.values() if "layers" in m), {})
    unused = first.get("unused", [])
    more = f"; {len(unused)} parameters unused: {unused[0]} ..." if unused else ""
    return passed(f"{first.get('layers', 0)} layers judged{more}")
