"""Options of a verification's container, as `verify` takes them. Edge."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Annotated

from warpfront.errors import InputError

TIME_LIMIT_SECONDS = 1200


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options of a verification's container. `limit_seconds` ends each of its runs; sessions
    under an emulator run in a container each.
    """

    repeat: Annotated[
        int, "N  runs with other seeds (default 1); a check that flips has failed"
    ] = 1
    limit_seconds: Annotated[int, "stop a container after N seconds (default 1200)"] = (
        TIME_LIMIT_SECONDS
    )
    user: Annotated[str, "UID  uid or uid:gid of the checks (yours)"] = ""
    fresh: Annotated[bool, "run every session, also those proven before an interruption"] = False
    emulate: Annotated[str, "DIR  run sessions in AMD's emulator rocJITsu of this folder"] = ""

    def __post_init__(self) -> None:
        """Raise `InputError` for what no container can be run with."""
        if self.emulate and self.repeat > 1:
            raise InputError("--repeat does not apply to --emulate", hint="leave it out")
        for name, value in (("repeat", self.repeat), ("limit-seconds", self.limit_seconds)):
            if value < 1:
                raise InputError(f"--{name} {value} is not a number from 1 on", hint=f"--{name} 3")
        if not self.user:
            return
        if not re.fullmatch(r"\d{1,10}(:\d{1,10})?", self.user):
            raise InputError(f"--user {self.user!r} is no uid or uid:gid", hint="--user 12345")
        ours = os.getuid(), os.getgid()
        if os.getuid() and self.user_and_group != ours:
            message = "only root can hand the folder of the results to another user"
            hint = f"sudo, or leave it out: the checks run as {ours[0]}:{ours[1]}"
            raise InputError(f"--user {self.user}: {message}", hint=hint)

    @property
    def user_and_group(self) -> tuple[int, int]:
        """Return uid and gid as `docker run --user` reads them: the default group is root's."""
        if not self.user:
            return os.getuid(), os.getgid()
        user, _, group = self.user.partition(":")
        return int(user), int(group or 0)
