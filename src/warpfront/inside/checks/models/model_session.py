"""The session `models`: our own families, while children compile and have a library's."""

from __future__ import annotations

from warpfront.inside.checks.architectures.registered import begin_usual
from warpfront.inside.checks.claims import Claims
from warpfront.inside.checks.effort import Effort
from warpfront.inside.checks.models.modes import begin_compiled, record_models
from warpfront.inside.checks.results import Recorder


def record_model_session(claims: Claims, recorder: Recorder, effort: Effort | None = None) -> None:
    """A child imports the library for longer than a family takes. A Gaudi belongs to the process
    that used it first, until that ends: there the children come before.
    """
    checks, wait = begin_usual(claims, recorder, effort)
    recorder.plan([check.name for check in checks])
    first = claims.device == "hpu"
    if not first:
        begun = begin_compiled(claims, effort or Effort())
        record_models(claims, recorder, effort, begun=begun)
    recorder.run(checks)
    wait()
    if first:
        record_models(claims, recorder, effort)
