"""A name and a home for a user of whom the image knows nothing: `docker run --user 12345`, or the
arbitrary uids of OpenShift. Run at every start of the interpreter, so it imports `os` and `pwd`.

Without a passwd entry `getpass.getuser` raises, and torch before 2.13 calls it when inductor is
imported. Without a home that can be written, nothing that caches below `~` works: uv, torch.hub,
Hugging Face, Triton, matplotlib, CUDA. Both are variables, so both are answered by variables.
"""

import os

TYPE_CHECKING = False  # as `typing` has it, which is slow to load
if TYPE_CHECKING:
    from collections.abc import MutableMapping
    from typing import Any

# As `getpass.getuser` reads them.
_NAMES = ("LOGNAME", "USER", "LNAME", "USERNAME")
# The uid for which this was done, and the folder: child processes need not look again, and one
# that changed its uid gets neither the name nor the folder of another.
MARK = "WARPFRONT_GUARD_USER"
_PRIVATE = 0o700
_OTHERS = 0o077
_KIND, _FOLDER = 0o170000, 0o040000  # as `stat` has them; a link is no folder


def provide(environment: "MutableMapping[str, str]", uid: int) -> str:
    """Complete `environment` for `uid`, and return a sentence where that is not possible.

    What is there and can be used stays. The folder belongs to this uid alone: a cache that
    another user of the container could fill would be code of theirs.
    """
    before, _, folder = environment.get(MARK, "").partition(" ")
    if before == str(uid):
        return ""
    if before:
        _take_back(environment, f"uid_{before}", folder)
    entry = None if environment.get("HOME") and _is_named(environment) else _entry(uid)
    nameless = not _is_named(environment) and entry is None
    if nameless:
        environment["LOGNAME"] = environment["USER"] = f"uid_{uid}"
    home = environment.get("HOME") or (entry.pw_dir if entry else "")
    homeless = not (os.path.isabs(home) and os.access(home, os.W_OK | os.X_OK))  # noqa: PTH117 - no pathlib: see `startup`
    if not nameless and not homeless:
        return ""
    folder = _own_folder(uid, environment.get("TMPDIR", ""), "" if homeless else home)
    environment[MARK] = f"{uid} {folder}"
    if not folder:
        sentence = (
            f"uid {uid} can write neither its HOME ({home or 'not set'}) nor /tmp, so caches have"
            " no place: set HOME to a folder of this uid (-e HOME=/work), or add --tmpfs /tmp:exec"
        )
        return sentence if homeless else ""
    if homeless:
        environment["HOME"] = folder
    # torch puts what it compiles below the folder for temporary files, by the user's name.
    environment["TMPDIR"] = f"{folder}/temporary"
    return ""


def _is_named(environment: "MutableMapping[str, str]") -> bool:
    return any(environment.get(name) for name in _NAMES)


def _entry(uid: int) -> "Any":
    import pwd  # noqa: PLC0415 - not every start needs it

    try:
        return pwd.getpwuid(uid)
    except KeyError:
        return None


def _take_back(environment: "MutableMapping[str, str]", name: str, folder: str) -> None:
    """Remove what was provided for another uid; what was set since stays."""
    theirs = {"LOGNAME": name, "USER": name, "HOME": folder, "TMPDIR": f"{folder}/temporary"}
    for variable, value in theirs.items():
        if environment.get(variable) == value:
            del environment[variable]
    del environment[MARK]


def _own_folder(uid: int, temporary: str, home: str) -> str:
    """Return the folder of this uid, with `temporary` in it; "" where none can be made."""
    for base in (temporary, "/tmp", "/var/tmp", home):  # noqa: S108 - made private, or not used
        usual = f"{base}/warpfront-{uid}"
        # Where another user made the usual one first, a name that could not be foreseen.
        for folder in (usual, f"{usual}-{os.urandom(8).hex()}") if base else ():
            if _make_private(folder, uid) and _make_private(f"{folder}/temporary", uid):
                return folder
    return ""


def _make_private(folder: str, uid: int) -> bool:
    """Make the folder unless it is there. Return whether it is one, and closed to other users."""
    try:
        os.mkdir(folder, _PRIVATE)  # noqa: PTH102 - as above
    except FileExistsError:
        pass
    except OSError:
        return False
    status = os.lstat(folder)
    closed = status.st_uid == uid and not status.st_mode & _OTHERS
    return closed and status.st_mode & _KIND == _FOLDER
