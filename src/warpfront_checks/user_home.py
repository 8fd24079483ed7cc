"""The name and home of the user that the checks run as. A guard provides them if the image does
not know its uid (`inside.guard.user_environment`).
"""

from __future__ import annotations

import getpass
import os
import tempfile

from warpfront_checks.results import CheckFinding, judged


def check_user() -> CheckFinding:
    """Check that the user has a name, and that its home and the temporary folder are writable."""
    wrong, name, temporary = [], "", ""
    try:
        name = getpass.getuser()
    except (KeyError, OSError) as error:
        wrong.append(f"getpass.getuser() raises {error}: set USER")
    home = os.path.expanduser("~")  # noqa: PTH111 - Path.expanduser raises where there is none
    if reason := _unwritable(home):
        wrong.append(f"HOME cannot be written: {reason}: set it to a folder of uid {os.getuid()}")
    try:
        temporary = tempfile.gettempdir()
    except OSError as error:
        wrong.append(f"{error}: add --tmpfs /tmp:exec")
    return judged(
        wrong, f"{name}, {home}", uid=os.getuid(), user=name, home=home, temporary=temporary
    )


def _unwritable(folder: str) -> str:
    if not os.path.isabs(folder):  # noqa: PTH117 - as above
        return f"{folder} is no absolute path"
    try:
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return f"{folder}: {error.strerror}"
