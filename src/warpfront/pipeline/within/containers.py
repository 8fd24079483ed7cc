"""What `verify` and `compile` have in common: the image that was built, and what a container left
and how it ended.
"""

from __future__ import annotations

import json

from warpfront.errors import NotVerifiedError
from warpfront.images.engine import Engine, RunResult
from warpfront.images.labels import CONTENT_HASH
from warpfront.model import Blocked, BuiltImage, Cell, Failed
from warpfront.system.store import Store

MEMORY_BYTES = 8 * 2**30


def built_image(store: Store, cell: Cell, engine: Engine) -> BuiltImage | Failed:
    """The image that `build` left, if the engine still holds that very content."""
    hint = f"invoke build --only {cell.id}"
    built = store.load(cell.id, "build", (BuiltImage, Blocked, Failed))
    if not isinstance(built, BuiltImage):
        reason = "not built" if built is None else f"not built: {built.reason}"
        return not_verified(cell, reason, hint)
    image = engine.image(built.image_id)
    if image is None:
        return not_verified(cell, f"the engine holds no image {built.image_id}", hint)
    if image.labels.get(CONTENT_HASH) != built.content_hash:
        return not_verified(cell, f"{built.image_id} has another content hash than was built", hint)
    return built


def not_verified(cell: Cell, reason: str, hint: str) -> Failed:
    return Failed(
        cell_id=cell.id,
        step="verify",
        reason=reason,
        hint=hint,
        exit_code=NotVerifiedError.exit_code,
    )


def parsed_json(text: str | None) -> object | None:
    """A JSON value; what is not JSON is handed on as text, which the verdict refuses as such."""
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        return text


def ending_of(result: RunResult, *, limit_seconds: float) -> str:
    """How the container ended, if not by itself; goes into the reason of every check that
    left no result.
    """
    if result.oom_killed:
        return f"the container ran out of its {MEMORY_BYTES // 2**30} GiB of memory"
    if result.timed_out:
        return f"the container was stopped after {limit_seconds:g} s"
    return "" if result.exit_code in {0, 1} else f"the container exited with {result.exit_code}"
