"""Commands that put the guard around the stack of an image, `install` and `adopt`; and `relax`, the
visible way out.
"""

from __future__ import annotations

import compileall
import contextlib
import json
import os
import py_compile
import shutil
import stat
import struct
from collections.abc import Container, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from .at_import import at_import, made_again
from .bytecode import bytecode_text
from .channels import by_file, channel_files
from .fast_path import metadata_in, mount_of
from .interpreter import interpreter_facts
from .manifest import Manifest, manifest_text, packages_text, read_manifest
from .measuring import (
    Installed,
    differences,
    installed,
    is_sealed,
    measure,
    measured_text,
    met_needs,
    needs_of,
    recorded_paths,
    versions_of,
)
from .names import INSTALLER, shim_files, triton_shims
from .places import Places
from .policy import GuardError, Policy, normalized, policy_from, read_policy, reading

# What the names of an image's own labels begin with (`warpfront.images.labels`).
LABELS = "dev.warpfront"
_SMALL_BYTES = 1 << 20
_BIRTH = 0x800  # STATX_BTIME
_PROGRAM = """\
#!{python}
{load}
sys.exit(warpfront_guard.{module}.main(sys.argv[1:]))
"""


def seal(
    policy: Policy, places: Places, *, python: str, manifest: Manifest | None = None
) -> Policy:
    """Write constraints, channels, shims, programs and manifest; return the policy with the
    adopted distributions. `python` is the interpreter of the programs. `manifest` lists the
    files of this stack's wheels; without one every file is read. Raise `GuardError`, with
    nothing written, if the stack is not as policy and manifest require or one of the files
    may not be written.
    """
    distributions = installed(places.site_packages)
    policy = _adopted(policy, distributions, places)
    shims = {path: text for shim in policy.shims for path, text in shim_files(shim).items()}
    # The launcher explains the refusals of uv. Without uv there is none, so that `command -v uv`
    # stays true to the image.
    modules = {"warpfront-guard": "__main__"}
    if shutil.which("uv") is not None:
        modules["uv"] = "launcher"
    programs = {places.programs / n: program_text(places, python, m) for n, m in modules.items()}
    in_place, layer_start = None, layer_began(places.site_packages)
    if manifest is None:
        in_place = manifest = measure(places.site_packages, policy.protected)
    else:
        manifest = _as_installed(manifest, policy, distributions, places)
    manifest = _with_shims(manifest, policy)
    text = manifest_text(manifest)
    write_files(
        {
            **{places.site_packages / path: text for path, text in shims.items()},
            places.manifest: text,
            places.at_import: at_import(
                policy,
                manifest,
                (policy_text(policy), text),
                met=met_needs(policy, distributions),
                interpreter=interpreter_facts(places.interpreters),
                entries={
                    *metadata_in(str(places.site_packages)),
                    *(shim_file.partition("/")[0] for shim_file in shims),
                },
            ),
            places.packages: packages_text(manifest),
            places.bytecode: bytecode_text(places.site_packages, manifest),
            places.policy: policy_text(policy),
            **programs,
            **channel_files(policy, places),
        },
        programs=programs,
    )
    # Byte code that is valid at any file time: the guard runs at every start.
    mode = py_compile.PycInvalidationMode.CHECKED_HASH
    compileall.compile_dir(places.library, quiet=2, invalidation_mode=mode)
    # Make the folders that this layer had already written to newer than the seal. In the layer
    # that a container writes to, a write renews no folder that is in it, so an import has to look
    # at each file below. The first write to any other folder renews it.
    for path in sorted(in_place.location / top for top in in_place.tops()) if in_place else ():
        status = path.stat()
        if status.st_ctime_ns >= layer_start:
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    return policy


def layer_began(location: Path) -> int:
    """Return when the layer that this container writes to was made, in nanoseconds; 0 where that
    is not known. On overlayfs it is the birth of the root folder, which Python's `stat` lacks.
    """
    kind, point = mount_of(str(location))
    try:
        import ctypes  # noqa: PLC0415 - not in every Python

        statx, facts = ctypes.CDLL(None).statx, ctypes.create_string_buffer(256)
    except (ImportError, AttributeError, OSError):
        return 0
    failed = statx(-100, os.fsencode(point), 0, _BIRTH, facts)  # AT_FDCWD
    (mask,) = struct.unpack_from("I", facts, 0)
    seconds, nanoseconds = struct.unpack_from("qI", facts, 80)
    if kind != "overlay" or failed or not mask & _BIRTH:
        return 0
    return int(seconds) * 10**9 + int(nanoseconds)


def policy_text(policy: Policy) -> str:
    return json.dumps(policy.document(), indent=1, sort_keys=True) + "\n"


def _adopted(policy: Policy, distributions: Installed, places: Places) -> Policy:
    """Return the policy with the image's distributions that match the patterns to adopt, at
    their versions, a shim if its triton has another name, and the needs of all. Raise `GuardError`
    if the stack is not as it requires.
    """
    if policy.adopt:
        adopted = {
            name: releases[0].version
            for name, releases in distributions.items()
            if any(fnmatchcase(name, pattern) for pattern in policy.adopt)
            and (releases[0].read_text("INSTALLER") or "").strip() != INSTALLER
        }
        if "torch" not in adopted:
            raise GuardError(f"{places.site_packages} holds no torch: nothing to adopt")
        policy = replace(
            policy,
            protected={**adopted, **policy.protected},
            sentinels={name: why for name, why in policy.sentinels.items() if name not in adopted},
            shims=policy.shims or triton_shims(adopted),
        )
    for name, version in policy.protected.items():
        versions = versions_of(distributions, name)
        if versions != [version]:
            text = " and ".join(versions) or "missing"
            raise GuardError(f"{places.site_packages}: {name} is {text}, to be sealed is {version}")
    for name in policy.sentinels:
        if name in distributions:
            raise GuardError(f"{places.site_packages}: {name} is there and must not be")
    for shim in policy.shims:
        if versions_of(distributions, shim.name) not in ([], [shim.version]):
            raise GuardError(
                f"{places.site_packages}: {shim.name} is there, in the place of {shim.requires}"
            )
    return replace(policy, needs=needs_of(distributions, policy.protected))


def _as_installed(
    manifest: Manifest, policy: Policy, distributions: Installed, places: Places
) -> Manifest:
    """Return the wheels' manifest if the installed files match it: the same files, of the same
    sizes, and the small ones of the same content. `verify` compares the content of large files,
    so that a build does not take that time.
    """
    if dict(manifest.versions) != dict(policy.protected):
        raise GuardError("the manifest is of other distributions than the policy protects")
    manifest = replace(manifest, location=places.site_packages)
    changed = differences(
        manifest, manifest.files, doubted=lambda status: status.st_size < _SMALL_BYTES
    )
    wrong = [f"{path}: {text}" for path, text in changed]
    for name, files in manifest.files.items():
        recorded = recorded_paths(distributions[name][0], places.site_packages)
        wrong += [f"{path}: not in the wheel of {name}" for path in recorded if path not in files]
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise GuardError(f"{places.site_packages} is not what its wheels hold: {wrong[0]}{more}")
    return manifest


def _with_shims(manifest: Manifest, policy: Policy) -> Manifest:
    """Return the measures with the shims, which are yet to be written."""
    shims = {
        shim.name: {
            path: measured_text(text) for path, text in shim_files(shim).items() if is_sealed(path)
        }
        for shim in policy.shims
    }
    versions = {shim.name: shim.version for shim in policy.shims}
    versions.update(manifest.versions)
    return replace(manifest, versions=versions, files={**manifest.files, **shims})


def program_text(places: Places, python: str, module: str) -> str:
    return _PROGRAM.format(python=python, load=by_file(places.library, module), module=module)


_READABLE = 0o644
_RUNNABLE = 0o755


def write_files(texts: Mapping[Path, str | bytes], *, programs: Container[Path] = ()) -> None:
    """Write every text to a temporary file, then move each into its place, in order. An
    interruption leaves no half of a file, and before the moves nothing at all. A new file can be
    read by everybody, whatever the umask; an existing one has its mode preserved. Raise
    `GuardError` before anything is written if one of them may not be.
    """
    targets = {path: Path(os.path.realpath(path)) for path in texts}
    for target in targets.values():
        folder = next(parent for parent in target.parents if os.path.lexists(parent))
        if not os.access(folder, os.W_OK | os.X_OK):
            raise GuardError(f"{target}: no right to write in {folder}: run this as root")
    asides: dict[Path, Path] = {}
    folders: list[Path] = []
    try:
        for path, text in texts.items():
            target = targets[path]
            above = (target.parent, *target.parent.parents)
            missing = [parent for parent in above if not parent.exists()][::-1]
            for parent in missing:
                parent.mkdir()
                parent.chmod(_RUNNABLE)
            folders += missing
            aside = target.with_name(f".{target.name}.new")
            asides[aside] = target
            aside.write_bytes(text.encode() if isinstance(text, str) else text)
            mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else _READABLE
            aside.chmod(_RUNNABLE if path in programs else mode)
        for aside, target in asides.items():
            aside.replace(target)
    except OSError as error:
        raise GuardError(f"{error.filename}: {error.strerror}") from error
    finally:
        for aside in asides:
            aside.unlink(missing_ok=True)
        for folder in reversed(folders):
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()


def relax(reasons: Mapping[str, str], places: Places) -> list[str]:
    """Record for each name why it may change, or why its demands on the stack may go unmet;
    returns what to tell. Raise `GuardError`, and has written nothing, without a reason or
    the right to write.
    """
    before = read_policy(places.policy)
    policy, lines = before, []
    for name, reason in reasons.items():
        name, reason = normalized(name.strip()), " ".join(reason.split())  # noqa: PLW2901 - the same, cleaned
        if not reason:
            command = f"warpfront-guard relax {name} --reason TEXT"
            raise GuardError(f"{name}: a reason is needed: {command}")
        policy = policy_from(policy.relax(name, reason).document())
        if name == "torch":
            with_it = [name for name in before.pinned() if name != "torch"]
            still = f"The labels of an image still say {before.holds()}"
            lines += [
                "torch is no longer protected: pip and uv may bring, replace or remove it,",
                f"and what goes with it: {', '.join(with_it) or 'nothing'}.",
                f"{still}: a Dockerfile that does this adds",
                f"  LABEL {LABELS}.relaxed=torch {LABELS}.torch=VERSION",
            ]
        elif policy.is_relaxed("torch"):
            lines.append(f"recorded: {name}. torch is relaxed, so nothing holds it here.")
        elif name in {**before.pinned(), **before.forbidden(), **before.needed()}:
            lines += [
                f"{name} is no longer protected: pip and uv may bring, replace or remove it.",
                f"Still at their versions: {', '.join(policy.pinned()) or 'nothing'}.",
            ]
        else:
            lines += [
                f"recorded: what {name} demands of {policy.holds()} may go unmet. To install it:",
                f"  uv pip install --override {places.overrides} {name}",
                "or, with pip, without what it depends on, and then what `pip check` misses:",
                f"  pip install --no-deps {name}",
            ]
    text = policy_text(policy)
    files: dict[Path, str | bytes] = {places.policy: text}
    # Without a manifest the policy alone is written: an import names what is lost.
    with contextlib.suppress(GuardError):
        manifest = read_manifest(places.manifest)
        texts = text, places.manifest.read_text("utf-8")
        files[places.at_import] = made_again(places.at_import, policy, manifest, texts)
    write_files({**files, **channel_files(policy, places)})
    return lines


def read_reasons(path: Path) -> dict[str, str]:
    """Return name -> reason from a JSON file. Raise `GuardError`."""
    with reading(path, "JSON"):
        reasons = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(reasons, dict) or not all(isinstance(why, str) for why in reasons.values()):
        raise GuardError(f"{path}: not names with their reasons")
    return reasons
