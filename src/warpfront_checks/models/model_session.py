"""The session `models`: our own families, while children compile and have a library's."""

from __future__ import annotations

from warpfront_checks.architectures.registered import begin_usual
from warpfront_checks.check_options import CheckOptions
from warpfront_checks.claims import Claims
from warpfront_checks.models.modes import begin_compiled, record_models
from warpfront_checks.results import Recorder


def record_model_session(
    claims: Claims, recorder: Recorder, effort: CheckOptions | None = None
) -> None:
    """A child imports the library for longer than a family takes. A Gaudi belongs to the process
    that used it first, until that ends: there the children come before.
    """
    checks, wait = begin_usual(claims, recorder, effort)
    recorder.plan([check.name for check in checks])
    first = claims.device == "hpu"
    if not first:
        compiled_checks = begin_compiled(claims, effort or CheckOptions())
        record_models(claims, recorder, effort, begun=compiled_checks)
    recorder.run(checks)
    wait()
    if first:
        record_models(claims, recorder, effort)
