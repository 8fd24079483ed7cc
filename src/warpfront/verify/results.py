"""Results of the checks of an image. Words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

EMULATOR = "emulator"
"""The key of the emulator in the environment of a verification."""


class Outcome(StrEnum):
    """The result of a check, a session or a verification. Only `PASSED` is a pass.

    `EMULATED`: the results are right, and an emulator or an interposer answered for the device.
    `UNDETERMINED`: they are right, and whether hardware computed them could not be determined.
    """

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    UNAVAILABLE = "unavailable"
    EMULATED = "emulated"
    UNDETERMINED = "undetermined"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """A check of a session. `details` are small JSON values: measured and expected ones."""

    session: str
    name: str
    outcome: Outcome
    reason: str
    seconds: float = 0.0
    details: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """Results of the checks for a cell on one target.

    `where` is `image` (inside the built image) or `here` (the current Python). `content_hash` and
    `image_id` are empty for `here`. `environment` is what the checks saw: torch, python, devices.
    """

    cell_id: str
    target: str
    where: Literal["image", "here"]
    image_id: str = ""
    content_hash: str = ""
    sessions: tuple[str, ...] = ()
    checks: tuple[CheckResult, ...] = ()
    seconds: float = 0.0
    environment: Mapping[str, object] = field(default_factory=dict)
    ended: str = ""
    seal: str = ""
