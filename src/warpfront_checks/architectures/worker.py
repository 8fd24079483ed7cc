"""The child of the architectures: one type of model after the other, in every requested mode.

`python -m warpfront_checks.architectures.worker JOB`
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Mapping
from typing import Any

import torch

from warpfront_checks.architectures.architecture_runs import (
    FedModel,
    document_of,
    judge_pass,
    prepare,
)
from warpfront_checks.architectures.roster import Architecture
from warpfront_checks.architectures.small_models import NotBuiltError
from warpfront_checks.architectures.using import USES
from warpfront_checks.children import serve
from warpfront_checks.precision import DTYPES, require_full_precision
from warpfront_checks.results import ERROR, FAILED, PASSED, UNAVAILABLE, finding_from

# Nothing is fetched, and a library's progress bars are for people.
QUIET = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
}


def try_item(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an outcome for each mode of one architecture, or why there is none."""
    fields = {name: item[name] for name in ("name", "kind", "model")}
    start = time.monotonic()
    try:
        prepared_model = prepare(Architecture(**fields), item["seed"], item["patience"])
    except NotBuiltError as error:
        return {"outcome": UNAVAILABLE, "reason": str(error), "modes": {}}
    prepared = time.monotonic() - start
    modes = {mode: _mode(prepared_model, mode, item["device"]) for mode in item["modes"]}
    return {"modes": modes, "prepared_seconds": round(prepared, 3), **_summed(modes)}


def _mode(fed_model: FedModel, mode: str, device: str) -> dict[str, Any]:
    start = time.monotonic()
    try:
        result = _judged(fed_model, mode, device)
    except Exception as error:  # noqa: BLE001 - what a model raises in one mode is that mode's result
        raised = finding_from(error)
        result = {"outcome": ERROR, "reason": raised.reason}
    return {**result, "seconds": round(time.monotonic() - start, 3)}


def _judged(fed_model: FedModel, mode: str, device: str) -> dict[str, Any]:
    if mode not in DTYPES:
        finding = USES[mode](fed_model, device)
        return {"outcome": finding.outcome, "reason": finding.reason, **finding.details}
    judged = judge_pass(fed_model, device, DTYPES[mode])
    document = document_of(fed_model, judged)
    outcome = FAILED if document["fault"] else PASSED
    reason = document["fault"]
    if not judged.layers and judged.whole:
        outcome, reason = UNAVAILABLE, f"nothing could be judged: {judged.whole}"
    return {"outcome": outcome, "reason": reason, **document}


def _summed(modes: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the worst of the modes, and its reason with its mode's name."""
    for worst in (ERROR, FAILED, UNAVAILABLE):
        for mode, result in modes.items():
            # What a class does not do, generating say, is no fault of the device's.
            if result["outcome"] == worst and not (worst == UNAVAILABLE and mode in USES):
                return {"outcome": worst, "reason": f"{mode}: {result['reason']}"}
    return {"outcome": PASSED, "reason": ""}


def main() -> None:
    os.environ.update(QUIET)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    require_full_precision()
    serve(try_item)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    # A library's threads and caches are not waited for.
    os._exit(0)
