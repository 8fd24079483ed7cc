"""Locks: the inputs of a cell's wheels, and the PEP 751 file that pins them. Pure.

A lock names wheels by index, file name, hash and size, never by a machine's
path or mirror, so it is the same file on every machine. `path` of every
wheel is its bare file name: a folder with the lock and the wheels can be
installed from (https://packaging.python.org/specifications/pylock-toml/).
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import PurePath
from typing import Any, TypeVar

from packaging.pylock import (
    Package,
    PackageSdist,
    PackageWheel,
    Pylock,
    PylockValidationError,
    is_valid_pylock_path,
)
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version
from pydantic import ValidationError

from warpfront.errors import LockError
from warpfront.matrix.cell import (
    NO_VARIANT,
    Cell,
    Recipe,
    RequirementList,
    VariantRule,
)
from warpfront.matrix.vendors import VENDORS
from warpfront.system.strict_values import extended, first_wrong, object_in, read_as, text_of
from warpfront.system.toml import dump_toml
from warpfront.wheels.core_metadata import split_label
from warpfront.wheels.lock.values import (
    NO_LOCK,
    PYPI,
    LockedWheel,
    LockInputs,
    PatchedWheel,
    RelaxedPackage,
    UnbuiltWheel,
    WheelLock,
    matches,
    misplaced,
)

SCHEMA = 1
UNBUILT = "unbuilt"
"""In the place of the sha256 of a wheel that does not exist yet."""

T = TypeVar("T")
_ROWS: Mapping[str, type[Any]] = {
    "relaxed": RelaxedPackage,
    "builds": Recipe,
    "patched": PatchedWheel,
    "unbuilt": UnbuiltWheel,
}
"""The tables of `[tool.warpfront]` with a value for each package, as fields of a lock."""
_SHA256 = re.compile(r"[0-9a-f]{64}")


def lock_inputs(
    cell: Cell,
    requirement_list: RequirementList | None,
    parent: WheelLock | None,
    *,
    folders: Mapping[str, str] | None = None,
    unfit: tuple[str, ...] = (),
) -> LockInputs:
    """Return everything that `cell`'s lock depends on.

    The stack's pins may come from the cell's index only. The compiler's wheels, the cell's
    requirements and those of its file (`requirement_list`) come from PyPI. `parent` is the lock of
    the parent image's cell; `folders` the sha256 of each folder of sources in the file; `unfit` the
    patches that differ from the matrix.
    """
    requirement_list = requirement_list or RequirementList()
    compiler = cell.compiler.requirements if cell.compiler else ()
    vendor, parent = VENDORS[cell.vendor], parent or NO_LOCK
    inherited = {package.package: package.reason for package in parent.relaxed}
    return extended(
        LockInputs,
        cell,
        cell_id=cell.id,
        glibc=cell.base.glibc,
        stack_requirements=tuple(sorted(str(pin) for pin in cell.stack)),
        requirements=tuple(sorted({*compiler, *cell.requirements, *requirement_list.requirements})),
        parent=tuple(f"{wheel.name}=={wheel.version}" for wheel in sorted(parent.wheels)),
        relax=tuple(sorted({**inherited, **cell.relax}.items())),
        sources=tuple(
            dataclasses.replace(source, pin=(folders or {}).get(source.location, ""))
            if source.kind == "folder"
            else source
            for source in requirement_list.sources
        ),
        unfit=unfit,
        targets=tuple(sorted(cell.targets)) if vendor.has_device_wheels(cell.toolkit) else (),
        toolkit=vendor.toolkit or "cpu",
        protected=vendor.protected,
        libraries=vendor.libraries,
        variants=variant_rule(cell),
    )


def variant_rule(cell: Cell) -> VariantRule | None:
    """Return the wheel variants that `cell` accepts; None if matrix.yaml allows none."""
    if not cell.allow_variants:
        return None
    from warpfront.wheels.variants.tables import MACHINES  # noqa: PLC0415 - optional

    vendor = VENDORS[cell.vendor]
    of_device = [vendor.variant_properties(cell.toolkit, target) for target in cell.targets]
    named = [namespace for properties in of_device for namespace, _ in properties]
    return VariantRule(
        packages=cell.allow_variants,
        supported=tuple((*properties, *MACHINES.get(cell.machine, ())) for properties in of_device),
        namespace=named[0] if named else "",
        toolkit=cell.toolkit.version if cell.toolkit else "",
    )


def dump_lock(lock: WheelLock) -> str:
    """Return `lock` as the text of `pylock.<cell>.toml`: sorted, equal bytes on every machine."""
    patched = {wheel.package for wheel in lock.patched}
    # What PEP 751 has no field for.
    ours = {"schema": SCHEMA, "cell": lock.cell_id, "inputs": lock.inputs_digest}
    tables = {
        name: {value.package: _row(value) for value in sorted(getattr(lock, name))}
        for name in _ROWS
    }
    document = Pylock(
        lock_version=Version("1.0"),
        requires_python=SpecifierSet(f"=={lock.python}.*"),
        created_by="warpfront",
        packages=[_package(wheel, patched=wheel.name in patched) for wheel in sorted(lock.wheels)],
        tool={"warpfront": {**ours, **_filled(tables)}},
    ).to_dict()
    try:
        Pylock.from_dict(document)  # errors are reported before it is written
    except PylockValidationError as error:
        raise LockError(f"{lock.cell_id}: the lock would not be valid: {error}") from error
    variants = {wheel.name: wheel for wheel in lock.wheels if wheel.variant.label}
    for package in document["packages"]:
        if package["name"] in variants:  # PEP 825, which `packaging` does not know
            from warpfront.wheels.variants.tables import variant_document  # noqa: PLC0415 - optional

            wheel = variants[package["name"]]
            package["wheels"][0]["path"] = wheel.filename
            package["variants-json"] = variant_document(wheel.variant)
    return dump_toml(document)


def read_lock(text: str, *, path: str) -> WheelLock:
    """Return the lock in `text`; `path` is for messages and must be a name that PEP 751 allows.

    Refused: another schema, a wheel without size or sha256, a wheel named by URL or by folder, more
    than one wheel of a package.
    """
    if not is_valid_pylock_path(PurePath(path)):  # type: ignore[arg-type]  # only `.name` is read
        raise LockError(f"{path}: not a name for a lock", hint="use pylock.<cell>.toml, no dots")
    try:
        raw = tomllib.loads(text)
        return _read_document(Pylock.from_dict(_without_labels(raw)), raw)
    # What is no TOML, a number of 5,000 digits, and what is not as we write it.
    except (ValueError, RecursionError, PylockValidationError) as error:
        raise LockError(f"{path}: {error}", hint=_RELOCK) from error


def _read_document(document: Pylock, raw: Mapping[str, Any]) -> WheelLock:
    """Return the lock in a valid document. Raise `ValueError` for one that is not ours."""
    ours = object_in(document.tool, "warpfront")
    if not ours:
        raise ValueError("no [tool.warpfront]: not a lock of ours")
    if ours.get("schema") != SCHEMA:
        raise ValueError(f"schema {ours.get('schema')!r}, this warpfront reads {SCHEMA}")
    if lacking := [key for key in ("cell", "inputs") if not text_of(ours, key)]:
        raise ValueError(f"[tool.warpfront] has no {lacking[0]}")
    python = re.fullmatch(r"==(\d+\.\d+)\.\*", str(document.requires_python or ""))
    if python is None:
        raise ValueError("requires-python must be ==X.Y.*")
    packages = zip(document.packages, raw["packages"], strict=True)
    return WheelLock(
        cell_id=ours["cell"],
        python=python[1],
        inputs_digest=ours["inputs"],
        wheels=tuple(sorted(_read_wheel(package, table) for package, table in packages)),
        **{name: tuple(_read_rows(ours, name, kind)) for name, kind in _ROWS.items()},
    )


@contextlib.contextmanager
def _within(place: str) -> Iterator[None]:
    """Name the place of what is wrong. Raise `ValueError` for values of any other shape, too."""
    try:
        yield
    except ValidationError as error:
        raise ValueError(f"{place}: {first_wrong(error)}") from error
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{place}: {error!r}") from error


def staleness(lock: WheelLock, inputs: LockInputs) -> str:
    """Why `lock` no longer answers `inputs`, in words; empty when it does."""
    foreign = foreign_wheel(lock.wheels, inputs.machine)
    if foreign:
        return f"it has {foreign}"
    if inputs.unfit:
        return inputs.unfit[0]
    if unwanted := unwanted_variant(lock.wheels, inputs):
        return f"it has {unwanted}"
    if lock.inputs_digest == inputs.digest:
        wrong = misplaced(lock.wheels, inputs)
        return f"it claims {wrong}" if wrong else waits_for(lock)
    if lock.python != inputs.python:
        return f"it was made for Python {lock.python}, the matrix says {inputs.python}"
    changed = f"its inputs changed ({lock.inputs_digest[:12]} -> {inputs.digest[:12]})"
    return next(chain(_pinned_otherwise(lock, inputs), _made_otherwise(lock, inputs)), changed)


def waits_for(lock: WheelLock) -> str:
    """Describe the wheels of a lock that are to be built; "" for a complete lock."""
    names = ", ".join(map(str, lock.unbuilt))
    return f"to be built: {names}" if names else ""


def foreign_wheel(wheels: Iterable[LockedWheel], machine: str) -> str:
    """Describe the first wheel that needs another machine than `machine`; "" for none."""
    for wheel in wheels:
        # The ending is one of the pieces too, and no platform.
        platforms = wheel.kept_as.rpartition("-")[2].split(".")
        if not any(platform == "any" or platform.endswith(f"_{machine}") for platform in platforms):
            return f"{wheel.filename}, which is not for {machine}"
    return ""


def placeholder(wheels: Iterable[LockedWheel]) -> str:
    """Describe the first empty package of PyPI under a name that AMD's own index serves; "" for
    none. AMD reserves such names there (0.0.1.dev0 and 0.1.0, read 2026-11-27).
    """
    names = set(VENDORS["amd"].protected) - set(VENDORS["nvidia"].protected)
    for wheel in wheels:
        # `rocm-sdk` is reserved like `rocm-sdk-core`.
        spellings = (wheel.name, f"{wheel.name}-")
        if wheel.index == PYPI and any(matches(spelling, names) for spelling in spellings):
            return f"{wheel.name} {wheel.version} of PyPI, an empty package with AMD's name"
    return ""


def unwanted_variant(wheels: Iterable[LockedWheel], inputs: LockInputs) -> str:
    """Describe the first wheel that is a variant which the cell does not accept; "" for none."""
    rule = inputs.variants
    for wheel in wheels:
        if not wheel.variant.label:
            continue
        if rule is None or wheel.name not in rule.packages:
            return f"{wheel.filename}, and `allow_variants` does not name {wheel.name}"
        from warpfront.wheels.variants.tables import supports  # noqa: PLC0415 - optional

        if not supports(rule, wheel.variant):
            return f"{wheel.filename}, which is not for this cell's targets"
    return ""


def gone_back(before: WheelLock, after: WheelLock) -> tuple[str, ...]:
    """Return the names with a lower version than before, in words."""
    versions = {wheel.name: wheel.version for wheel in before.wheels}
    return tuple(
        f"{wheel.name} {versions[wheel.name]} -> {wheel.version}"
        for wheel in after.wheels
        if Version(wheel.version) < Version(versions.get(wheel.name, wheel.version))
    )


def difference(lock: WheelLock, parent: WheelLock) -> tuple[LockedWheel, ...]:
    """Return the wheels that `lock` adds to its parent's. A child changes nothing of its parent."""
    wheels = {wheel.name: wheel for wheel in lock.wheels}
    for theirs in parent.wheels:
        ours = wheels.get(theirs.name)
        if ours is None or (ours.filename, ours.sha256) != (theirs.filename, theirs.sha256):
            text = f"{ours.filename} ({ours.sha256[:12]})" if ours else "nothing"
            raise LockError(
                f"{lock.cell_id}: {theirs.name} is {theirs.filename} ({theirs.sha256[:12]}) in its "
                f"parent {parent.cell_id}, and {text} here",
                hint=f"lock {parent.cell_id} first, then {lock.cell_id}",
            )
    inherited = {wheel.name for wheel in parent.wheels}
    return tuple(sorted(wheel for wheel in lock.wheels if wheel.name not in inherited))


def _pinned_otherwise(lock: WheelLock, inputs: LockInputs) -> Iterator[str]:
    """Yield requirements that the lock does not have, or has at another version."""
    locked = {wheel.name: wheel.version for wheel in lock.wheels}
    for requirement in map(Requirement, (*inputs.stack_requirements, *inputs.parent)):
        version = locked.get(canonicalize_name(requirement.name))
        if version is None:
            yield f"it has no {requirement.name}, the matrix asks for {requirement}"
        elif not requirement.specifier.contains(version, prereleases=True):
            yield f"it has {requirement.name} {version}, the matrix asks for {requirement}"
    for requirement in map(Requirement, inputs.requirements):
        # One with a marker may be absent from a lock.
        if not requirement.marker and canonicalize_name(requirement.name) not in locked:
            yield f"it has no {requirement.name}, which is now required"


def _made_otherwise(lock: WheelLock, inputs: LockInputs) -> Iterator[str]:
    """Yield wheels that were built, relaxed or patched in another way than the matrix asks for."""
    for wheel in lock.wheels:
        if wheel.targets and set(wheel.targets) != set(inputs.targets):
            targets = " ".join(inputs.targets) or "none of its own"
            yield f"{wheel.name} is for {' '.join(wheel.targets)}, the matrix says {targets}"
    by_source = {wheel.source: wheel for wheel in lock.wheels if wheel.source}
    for source in inputs.sources:
        if (built := by_source.get(str(source))) is None:
            yield f"it has nothing from {source}, which is now required"
        elif source.kind == "folder" and built.sdist_sha256 != source.pin:
            yield f"{source} has changed since"
    reasons = dict(inputs.relax)
    for package in lock.relaxed:
        if package.package not in reasons:
            yield f"it relaxes {package.package}, the matrix no longer does"
        elif package.reason != reasons[package.package]:
            yield f"it relaxes {package.package} for another reason than the matrix gives"
    patched = {patch for wheel in lock.patched for patch in wheel.patches}
    for patch in inputs.patches:  # of this image: parents patch the others
        if patch not in patched:
            yield f"its {patch.package} is without {patch.file} as the matrix has it"


_RELOCK = "make it again: warpfront lock --only <cell>"


def _package(wheel: LockedWheel, *, patched: bool) -> Package:
    """Return the lock entry. PEP 751 has no sources of another version, as a patched wheel has, and
    none without a version, as our archives of sources are before they are built.
    """
    origin = {"targets": " ".join(wheel.targets)} if wheel.targets else {}
    if wheel.source:
        origin["source"] = wheel.source
    sdist = None
    if wheel.sdist and (wheel.source or patched):
        origin |= {"archive": wheel.sdist, "sha256": wheel.sdist_sha256}
    elif wheel.sdist:
        sdist = PackageSdist(path=wheel.sdist, hashes={"sha256": wheel.sdist_sha256})
    return Package(
        name=canonicalize_name(wheel.name),
        version=Version(wheel.version),
        index=wheel.index or None,
        sdist=sdist,
        wheels=[
            PackageWheel(path=wheel.kept_as, size=wheel.size_bytes, hashes={"sha256": wheel.sha256})
        ],
        tool={"warpfront": origin} if origin else None,
    )


def _row(value: RelaxedPackage | Recipe | PatchedWheel | UnbuiltWheel) -> dict[str, Any]:
    """Return a value's table, which its package names."""
    fields = {**dataclasses.asdict(value), "package": ""}
    if isinstance(value, Recipe):
        fields["environment"] = dict(value.environment)
    elif isinstance(value, UnbuiltWheel):
        fields["sha256"] = UNBUILT
    elif isinstance(value, PatchedWheel):
        fields["patches"] = [_filled(patch) for patch in fields["patches"]]
        if wheel := value.original:
            original = {"file": wheel.filename, "size": wheel.size_bytes, "index": wheel.index}
            fields["original"] = {**original, "sha256": wheel.sha256}
    return _filled(fields)


def _filled(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value not in ("", (), {}, None)}


def _read_rows(document: Mapping[str, Any], name: str, kind: type[T]) -> Iterator[T]:
    """Yield the values of a table of `[tool.warpfront]`, one for each package."""
    with _within(f"[tool.warpfront] {name}"):
        tables = read_as(dict[str, dict[str, Any]], document.get(name, {}))
    for package, table in sorted(tables.items()):
        with _within(f"{name}.{package}"):
            fields = {**table, "package": package}
            if "environment" in table:
                fields["environment"] = tuple(sorted(table["environment"].items()))
            if "original" in table:
                fields["original"] = _read_original(package, table["original"])
            yield read_as(kind, fields)


def _read_original(package: str, wheel: Mapping[str, Any]) -> LockedWheel:
    filename, size = wheel["file"], wheel["size"]
    if "/" in filename or not isinstance(size, int):
        raise ValueError(f"{filename!r} is no wheel's name with its size")
    return LockedWheel(
        name=package,
        version=str(parse_wheel_filename(filename)[1]),
        filename=filename,
        sha256=_read_sha256(wheel),
        size_bytes=size,
        index=wheel["index"],
    )


def _without_labels(raw: dict[str, Any]) -> dict[str, Any]:
    """Return the document with names that `packaging` knows: labels of variants are read apart."""
    try:
        packages = [
            package
            | {"wheels": [w | {"path": split_label(w["path"])[0]} for w in package["wheels"]]}
            for package in raw["packages"]
        ]
    except (KeyError, TypeError):  # of another shape, which is reported
        return raw
    return {**raw, "packages": packages}


def _read_wheel(package: Package, raw: Mapping[str, Any]) -> LockedWheel:
    with _within(package.name):
        if package.wheels is None or len(package.wheels) != 1:
            raise ValueError("not exactly one wheel")
        wheel = package.wheels[0]
        if wheel.url or not wheel.path or "/" in wheel.path or "\\" in wheel.path:
            raise ValueError("its wheel is not named by its bare file name")
        ours = read_as(dict[str, str], (package.tool or {}).get("warpfront", {}))
        archive, source, sdist = ours.get("archive", ""), ours.get("source", ""), package.sdist
        if "/" in archive or "\\" in archive:
            raise ValueError("its archive is not named by a bare file name")
        if wheel.size is None or wheel.size < 0 or bool(package.index) == bool(source):
            raise ValueError("no size or no index")
        filename, variant = str(raw["wheels"][0]["path"]), NO_VARIANT
        _, label = split_label(filename)
        if label or raw.get("variants-json") is not None:
            from warpfront.wheels.variants.tables import VariantTable  # noqa: PLC0415 - optional

            with _within("variants-json"):
                table = read_as(VariantTable, raw.get("variants-json"))
            if set(table.variants) != {label}:
                raise ValueError(f"{filename} is not the variant of its table")
            variant = table.variant(label)
        made_of = sdist.hashes if sdist else ours
        return LockedWheel(
            name=package.name,
            version=str(parse_wheel_filename(wheel.path)[1]),
            filename=filename,
            sha256=_read_sha256(wheel.hashes),
            size_bytes=wheel.size,
            index=package.index or "",
            sdist=sdist.filename if sdist else archive,
            sdist_sha256=_read_sha256(made_of) if sdist or "archive" in ours else "",
            source=source,
            targets=tuple(ours.get("targets", "").split()),
            variant=variant,
        )


def _read_sha256(hashes: Mapping[str, str]) -> str:
    sha256 = hashes.get("sha256", "")
    if not _SHA256.fullmatch(sha256):
        raise ValueError("no sha256")
    return sha256
