"""The fast path of an import: whether the stack is beyond doubt as it was sealed.

Loaded at every import of torch, so it imports built-in modules.
Wherever it is not certain, `watch` loads more, finds what changed and reports it.
"""

import marshal
import os
import sys

TYPE_CHECKING = False  # as `typing` has it, which is slow to load
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

NAME = "warpfront_guard"
# Group of entry points -> the package whose import loads the modules in it.
GROUPS = {"torch.backends": "torch", "triton.backends": "triton"}
METADATA = (".dist-info", ".egg-info")
# Every import of a torch that has these loads them; if one is absent, another is in its place.
CORE = ("libc10.so", "libtorch_cpu.so", "libtorch_python.so")
_DOCUMENT = "at-import.bin"
TIED = ("policy.json", "stack.json", _DOCUMENT)
_KIND, _DIRECTORY, _LINK = 0o170000, 0o040000, 0o120000
_MOUNTS = "/proc/self/mountinfo"
_EXTERNAL: "Any" = sys.modules["_frozen_importlib_external"]
_MODULE_SPEC: "Any" = sys.modules["_frozen_importlib"].ModuleSpec
_LOADERS = {".py": _EXTERNAL.SourceFileLoader, ".so": _EXTERNAL.ExtensionFileLoader}

# Packages whose import has begun in this process: what it leaves behind is no intruder.
imported: "set[str]" = set()
# Packages that were found as they were sealed. Their modules need no other look.
vouched: "set[str]" = set()
_documents: "dict[tuple[int, ...], Mapping[str, Any]]" = {}
_modules: "Mapping[str, str]" = {}  # module -> how its file's name goes on behind its own path
_location = ""
_process_is_clean = False


def look_at(name: str, spec: "Any", home: str, early: "Sequence[str]") -> bool:
    """Return whether the package that would come from `spec` is beyond doubt the sealed one, and
    everything sealed with it as it was. `early` are its modules in sys.modules before it.
    """
    global _modules, _location
    vouched.discard(name)
    folder = home + "/guard"
    document = _document(folder)
    if not document or name not in document["packages"] or (early and name not in imported):
        return False
    _modules, location = document["modules"], document["location"]
    _location, since = location + "/", os.stat(folder + "/stack.json").st_ctime_ns  # noqa: PTH116 - as above
    if (
        is_sealed(name, spec)
        and location in sys.path
        and mount_of(location)[0] == "overlay"
        and is_unwritten(location, document["tops"], since)
        and is_unwritten(location, document["shared"], sys.maxsize)
        and _has_harmless_entries(document, since)
        and _is_harmless_path(location, home + "/lib")
        and _is_clean_process(document["interpreter"], since)
    ):
        imported.add(name)
        vouched.add(name)
        return True
    return False


def is_absent(name: str, home: str) -> bool:
    """Return whether the stack was sealed without this package."""
    document = _document(home + "/guard")
    return bool(document) and name not in document["packages"]


def is_sealed(name: str, spec: "Any") -> bool:
    """Return whether a module would be loaded from its sealed file, by Python's own loader."""
    tail, origin, loader = _modules.get(name), spec.origin, spec.loader
    if tail is None or type(spec) is not _MODULE_SPEC or sys.pycache_prefix is not None:
        return False
    path = _location + name.replace(".", "/") + tail
    if not tail:  # a folder without an __init__.py, such as triton/_C
        return origin is loader is None and [*spec.submodule_search_locations] == [path]
    if origin != path or type(loader) is not _LOADERS.get(tail[-3:]):
        return False
    return bool(loader.__dict__ == {"name": name, "path": path})


def look_after(name: str, home: str) -> bool:
    """Return whether the process has mapped the sealed libraries, and no others of their names."""
    if name not in vouched:
        return False
    libraries = _document(home + "/guard")["libraries"]
    paths = set(mapped())
    for path in paths:
        sealed = libraries.get(path[path.rfind("/") + 1 :])
        if sealed is not None and path not in sealed:
            return False
    with_torch = name == "torch" or "torch._C" in sys.modules
    core = [libraries[file] for file in CORE if with_torch and file in libraries]
    return all(any(path in paths for path in sealed) for sealed in core)


def mapped() -> "list[str]":
    """Return the files whose code this process has mapped; none where there is no /proc."""
    try:
        with open("/proc/self/maps", errors="surrogateescape") as file:  # noqa: PTH123 - at every import of torch
            lines = [line.rstrip("\n").split(None, 5) for line in file if "x" in line[:60]]
    except OSError:
        return []
    return [*{line[5]: 0 for line in lines if "x" in line[1] and line[5:] and line[5][0] == "/"}]


def mount_of(location: str) -> "tuple[str, str]":
    """Return kind and mount point of the innermost mount that contains a folder. The kind is
    "mixed" if something is mounted below it, whose times are unrelated to the seal.
    """
    try:
        with open(_MOUNTS, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - as above
            mounts = [line.split() for line in file]
    except OSError:
        return "", ""
    real = os.path.realpath(location)
    if any(fields[4].startswith(f"{real}/") for fields in mounts):
        return "mixed", ""
    kinds = {
        fields[4]: fields[fields.index("-") + 1]
        for fields in mounts
        if fields[4] == "/" or f"{real}/".startswith(f"{fields[4]}/")
    }
    point = max(kinds, key=len, default="")
    return kinds.get(point, ""), point


def metadata_in(folder: str) -> "list[str]":
    """Return the folders of metadata in a folder for packages; none in what is no folder."""
    try:
        entries = os.listdir(folder)  # noqa: PTH208 - names are all it takes
    except OSError:
        return []
    return sorted(entry for entry in entries if entry.endswith(METADATA))


def name_and_version(entry: str) -> "tuple[str, str]":
    """Return name and version of a folder of metadata: `sympy-1.5.dist-info`, and as conda's older
    packages have it, `sympy-1.5-py3.11.egg-info`.
    """
    name, _, version = entry.rpartition(".")[0].partition("-")
    name = name.lower().replace("_", "-").replace(".", "-")
    while "--" in name:
        name = name.replace("--", "-")
    return name, version.partition("-")[0]


def harmless(entries: "Iterable[str]", document: "Mapping[str, Any]") -> "list[str]":
    """Return the folders of metadata that neither change what was sealed, nor what it needs, nor
    have torch load code. Used by the seal for all of them, at an import for the new ones.
    """
    folders = []
    for entry in entries:
        name, version = name_and_version(entry)
        if entry in document["metadata"] or (
            name not in document["versions"]
            and (name not in document["needs"] or document["met"].get(name) == version)
            and not groups_of(f"{document['location']}/{entry}")
        ):
            folders.append(entry)
    return folders


def groups_of(metadata: str) -> "list[str]":
    """Return the groups of a distribution's entry points that an import of the stack loads."""
    try:
        with open(metadata + "/entry_points.txt", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - as above
            headers = ["".join(line.split()) for line in file if line.lstrip()[:1] == "["]
    except OSError:
        return []
    return [group for group in GROUPS if f"[{group}]" in headers]


def _document(folder: str) -> "Mapping[str, Any]":
    """Return the seal's document for imports; nothing if it is not of this policy and manifest.
    Cached by the times of the files: a policy may be relaxed meanwhile.
    """
    try:
        status = [os.stat(f"{folder}/{name}") for name in TIED]  # noqa: PTH116 - as above
        times = tuple(entry.st_ctime_ns for entry in status)
        if times not in _documents:
            document = marshal.loads(_bytes(f"{folder}/{_DOCUMENT}"))  # noqa: S302 - as a .pyc is
            tied = document["manifest_bytes"] == status[1].st_size
            tied = tied and document["policy"] == _bytes(f"{folder}/policy.json")
            _documents[times] = document if tied else {}
        return _documents[times]
    except (OSError, ValueError, TypeError, KeyError, EOFError):
        return {}


def _bytes(path: str) -> bytes:
    with open(path, "rb") as file:  # noqa: PTH123 - as above
        return file.read()


def is_unwritten(location: str, paths: "Iterable[str]", since: int) -> bool:
    """Return whether no later layer wrote below the folder. On overlayfs a write to a file of a
    lower layer makes its folder, and all above it, anew. So the ctime of a top-level folder is that
    of the last layer that changed anything below it.
    """
    try:
        for path in paths:
            status = os.lstat(f"{location}/{path}")
            if status.st_ctime_ns >= since or status.st_mode & _KIND == _LINK:
                return False
    except OSError:
        return False
    return True


def _has_harmless_entries(document: "Mapping[str, Any]", since: int) -> bool:
    location, sealed = document["location"], document["entries"]
    entries = metadata_in(location)
    times = {entry: os.lstat(f"{location}/{entry}").st_ctime_ns for entry in entries}
    written = [entry for entry in entries if entry not in sealed or times[entry] >= since]
    return len(harmless(written, document)) == len(written)


def _is_clean_process(interpreter: "Mapping[str, Any]", since: int) -> bool:
    """Return whether the interpreter and its import system are the sealed ones; once a process."""
    global _process_is_clean  # noqa: PLW0603 - once a process
    if not _process_is_clean:
        from . import startup  # noqa: PLC0415 - not where the host reads this
        from .interpreter import interpreter_problems  # noqa: PLC0415
        from .machinery import machinery_problems, replaced_builtins  # noqa: PLC0415

        _process_is_clean = not (
            startup.replaced
            or replaced_builtins()
            or any(machinery_problems())
            or any(interpreter_problems(interpreter, since))
        )
    return _process_is_clean


def _is_harmless_path(location: str, library: str) -> bool:
    """Return whether no folder of the path has another guard, nor code that torch would load."""
    for folder in {entry_of_path or "." for entry_of_path in sys.path}:
        try:
            entries = os.listdir(folder)  # noqa: PTH208 - as above
        except FileNotFoundError:
            continue
        except OSError:  # an archive, or a folder of another user
            return False
        for entry in entries:
            if entry.partition(".")[0] == NAME and folder != library:
                return False
            if entry.endswith(METADATA) and folder != location and groups_of(f"{folder}/{entry}"):
                return False
    return True
