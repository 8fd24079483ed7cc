"""An import of a protected package that `fast_path` does not vouch for: what changed, in words."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from . import startup
from .fast_path import GROUPS, NAME, imported, mapped, metadata_in, name_and_version, vouched
from .interpreter import interpreter_problems
from .intruders import other_guards, plugins, shadows
from .machinery import machinery_problems, replaced_builtins
from .manifest import Manifest
from .origins import Stack, read_stack
from .policy import GuardError, Policy

_SHOWN = 3
_ISOLATED = "pip-build-env"  # where pip builds with a torch of its own
_AGAIN = "Start from the image again"
_UNSHADOWED = "Start Python without that library"
# Distributions whose files this process has looked at: torchvision's import need not do torch's
# again. What is imported is looked at each time.
_seen: set[str] = set()
# The sealed libraries by the names that a dynamic loader looks for, once one had to be looked at.
_libraries: dict[str, list[str]] = {}
# Packages that come from the image, so that each module below them has to.
_guarded: dict[str, Stack] = {}
# Package -> why it was refused after it had run: it must not run twice.
_shadowed: dict[str, str] = {}
_told: set[str] = set()


class Refusal:
    """Loader for a missing sealed package: the finder must not fail a mere query for torch."""

    def __init__(self, text: str) -> None:
        self._text = text

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        _refuse(spec.name, self._text)

    def exec_module(self, module: ModuleType) -> None:
        """Reached by `importlib.reload`."""
        _refuse(module.__name__, self._text)


def look_at(name: str, spec: ModuleSpec | None, *, home: str, early: Sequence[str] = ()) -> None:
    """Raises `ImportError` that names what changed, and which path won, if the protected package
    that would come from `spec` is not what was sealed, or has modules before it is there (`early`).
    """
    early = () if name in imported else early
    text = _shadowed.get(name) or _refusal_of(name, spec, Path(home) / "guard", early)
    if text:
        _refuse(name, text)
    imported.add(name)


def look_after(name: str, *, home: str) -> None:
    """Raise `ImportError` if the package, now loaded, runs other native code than was sealed."""
    if name in _guarded:
        _guarded[name].remember()
    if name in vouched:
        _libraries.update(read_stack(Path(home) / "guard").document["libraries"])
    if not _libraries:
        return
    # triton is imported without torch, too.
    with_torch = name == "torch" or "torch._C" in sys.modules
    intruders = shadows(_libraries, mapped(), os.environ, with_torch=with_torch)
    shadowing = [words for _, words in intruders]
    if shadowing:
        fault = "runs other code"
        _shadowed[name] = _refusal(name, _shortened(shadowing), "", fault=fault, back=_UNSHADOWED)
        _refuse(name, _shadowed[name])


def judge(spec: ModuleSpec, *, home: str) -> None:
    """Raise `ImportError` if a module of a protected package is not as sealed. The sealed file,
    loaded by another loader (a test runner, a profiler), is only reported.
    """
    name = spec.name
    top = name.partition(".")[0]
    stack = _guarded.get(top)
    if stack is None and (top not in imported or top in vouched):
        with contextlib.suppress(GuardError):  # its own import was not looked at
            sealed = read_stack(Path(home) / "guard")
            stack = sealed if _is_guarded(top, sealed) else None
    problem = stack.module_problem(spec) if stack is not None else ""
    if problem is None:
        kind = type(spec.loader)
        loader = f"{kind.__module__}.{kind.__qualname__}"
        if loader not in _told:
            _told.add(loader)
            _say(f"{name} is loaded by {loader}, not by Python's own loader")
    if problem and stack is not None:
        _refuse(name, _refusal(name, [problem], stack.policy.holds()))


def _is_guarded(top: str, stack: Stack) -> bool:
    distribution = stack.manifest.packages().get(top)
    if distribution is None or stack.policy.is_relaxed(distribution):
        return False
    return not _is_elsewhere(stack.manifest)


def instead_of(name: str, spec: ModuleSpec | None, *, home: str) -> ModuleSpec | None:
    """Return a spec that is refused, for a package without its code; else None."""
    text = _refusal_of(name, spec, Path(home) / "guard")
    if not text:
        return None
    loader: Any = Refusal(text)  # not a subclass of importlib.abc.Loader, which is slow to load
    return ModuleSpec(name, loader, origin=spec.origin if spec else None, is_package=True)


def _refuse(name: str, text: str) -> NoReturn:
    """Refuse, on stderr too: many programs take a failing `import torch` for "no torch here"."""
    _say(f"{name} is not imported: it was changed")
    raise ImportError(text, name=name)


def _refusal_of(name: str, spec: ModuleSpec | None, folder: Path, early: Sequence[str] = ()) -> str:
    """Return why `name` must not be imported, "" if it may be."""
    try:
        stack = read_stack(folder)
    except GuardError as error:
        return _refusal(name, [str(error)], "")
    policy, manifest = stack.policy, stack.manifest
    building = spec is not None and _ISOLATED in (spec.origin or "")
    if _is_elsewhere(manifest) and not building:
        # A torch of a user's own environment is the user's to have: reported, and not refused.
        sealed = manifest.versions.get(manifest.packages().get(name, ""))
        if spec is None or not spec.origin or sealed is None or policy.is_relaxed(name):
            return ""
        version = _version_beside(name, spec.origin)
        if version != sealed:
            _say(
                f"{name} {version} of {sys.prefix} is not this image's {name} {sealed}"
                f" in {manifest.location}, which this environment does not see"
            )
        return ""
    problems = list(import_problems(name, spec, stack))
    if not policy.is_relaxed(name):
        problems += _shortened([f"{path} was in sys.modules before {name} was" for path in early])
    if not building:  # which runs the libraries of its own torch
        _libraries.update(stack.document["libraries"])
        if _is_guarded(name, stack):
            _guarded[name] = stack
    # Most of torch runs without sympy, so needs that the stack cannot work with are only reported.
    needed, met = stack.policy.needed(), stack.document["met"]
    # One may be there twice: conda does not remove the metadata of files that it overwrites.
    folders = metadata_in(str(stack.manifest.location))
    for need, version in map(name_and_version, folders):
        if need not in needed or met.get(need) == version:
            continue
        from .requires_dist import meets  # noqa: PLC0415 - slow to load

        words = f"{need} {version} was installed; {policy.holds()} needs {need}{needed[need]}"
        if words not in _told and not meets(need + needed[need], version, unknown=True):
            _told.add(words)
            _say(words)
    return _refusal(name, problems, policy.holds()) if problems else ""


def _say(text: str) -> None:
    """Write to stderr or not at all: `print` would take stdout for a stderr that is None."""
    if sys.stderr is not None:
        print(f"warpfront guard: {text}", file=sys.stderr)


def _is_elsewhere(manifest: Manifest) -> bool:
    """Return whether this is a user's own environment, which does not see the image's packages."""
    location = os.path.realpath(manifest.location)
    return all(os.path.realpath(entry) != location for entry in sys.path)


def _version_beside(name: str, origin: str) -> str:
    """Return the version in a package's metadata, without importing it."""
    beside = Path(origin).parents[1].glob(f"{name}-*.dist-info")
    versions = [folder.name.removesuffix(".dist-info").partition("-")[2] for folder in beside]
    return " and ".join(sorted(versions)) or "of unknown version"


def import_problems(name: str, spec: ModuleSpec | None, stack: Stack) -> Iterator[str]:
    """Return the faults of a package, of what was sealed with it, and of imports, worst first."""
    policy, manifest = stack.policy, stack.manifest
    packages = manifest.packages()
    if policy.is_relaxed(packages.get(name, "")):
        return
    if name not in packages:
        yield from _external_problems(name, policy)
        return
    expected = manifest.location / name / "__init__.py"
    if spec is None:
        yield f"{name} was removed from {manifest.location}"
        return
    problem = stack.module_problem(spec)
    if spec.origin is None or os.path.realpath(spec.origin) != os.path.realpath(expected):
        won = spec.origin or next(iter(spec.submodule_search_locations or ()), "nowhere")
        if _ISOLATED in won:
            # pip builds in a folder with a torch of its own, which newer pips take without our
            # constraints. The same one is as good as the image's.
            version, installed = manifest.versions[packages[name]], _version_beside(name, won)
            if installed != version:
                has = f"this isolated build has {name} {installed}, the image's is {version}"
                yield f"{has}: build with --no-build-isolation"
            return
        yield f"{name} would come from {won}, the image's is {expected.parent}"
    elif problem:
        yield problem
    yield from _version_problems(stack)
    names = {*stack.names()} - _seen | {packages[name]}
    changed = list(stack.file_problems(names))
    if not changed:
        _seen.update(names)
    yield from _shortened(changed)
    is_off = name == "torch" and os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0"
    for distribution, group, folder in plugins(policy, manifest):
        if GROUPS[group] == name and not is_off:
            yield (
                f"{distribution} has it load its own code ({group} in {folder}): if that is meant,"
                f" `warpfront-guard relax {distribution} --reason TEXT`"
            )
    yield from _interpreter_problems(stack)


def _interpreter_problems(stack: Stack) -> Iterator[str]:
    """Return the faults of the stack's importers: interpreter, import system, guard."""
    if "interpreter" in _seen:
        return
    sealed = stack.document["interpreter"]
    problems = [f"{path}: {fault}" for path, fault in interpreter_problems(sealed, stack.since)]
    changed = [*machinery_problems(), *startup.replaced]
    problems += [f"{name} is not the interpreter's own" for name in _shortened(changed)]
    problems += [f"{path} is another {NAME}" for path in other_guards(sys.path, startup.FOLDER)]
    yield from problems
    late = [name for name in replaced_builtins() if name not in startup.replaced]
    if late:  # a debugger
        _say(f"{', '.join(late)} was replaced since Python started")
    if not problems:
        _seen.add("interpreter")


def _shortened(lines: list[str]) -> list[str]:
    more = len(lines) - _SHOWN
    return [*lines[:_SHOWN], *([f"and {more} more files"] if more > 0 else [])]


def _external_problems(name: str, policy: Policy) -> Iterator[str]:
    """A watched package that the image did not have: it has to be the one that fits its torch."""
    fitting = policy.companions.get(name)
    if fitting is None or policy.is_relaxed(name):
        return
    from importlib.metadata import distributions  # noqa: PLC0415 - slow to load

    installed = list(distributions(name=name))
    for copy in installed:
        beside = str(copy.locate_file("")) == str(installed[0].locate_file(""))
        if beside and copy.version != fitting:  # in a folder further on it is not what is imported
            yield f"{name} {copy.version} was installed; with {policy.holds()} goes {fitting}"


def _version_problems(stack: Stack) -> Iterator[str]:
    """Return metadata next to the sealed one: an install that went over it, or half of one."""
    sealed = {
        path.partition("/")[0]
        for name in stack.names()
        for path in stack.manifest.files[name]
        if path.endswith(".dist-info/METADATA")
    }
    names = {name_and_version(folder)[0] for folder in sealed}
    for entry in metadata_in(str(stack.manifest.location)):
        name, version = name_and_version(entry)
        if entry not in sealed and name in names:
            yield f"{name} {version} was installed over it"


def _refusal(
    name: str,
    problems: list[str],
    holds: str,
    *,
    fault: str = "was changed",
    back: str = _AGAIN,
) -> str:
    which = f" ({holds})" if holds else ""
    return (
        f"warpfront guard: {name}: the torch stack of this image{which} {fault}: "
        f"{'; '.join(problems)}. See `warpfront-guard verify` for all of it. {back} to have it "
        "back; a change that is meant: `warpfront-guard relax NAME --reason TEXT`."
    )
