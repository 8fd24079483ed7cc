"""AMD's `rocm`, which its index has as a source archive only (from ROCm 7.14): its wheel for
the targets of a cell, made without running its code. Edge.

Its setup.py writes other metadata on other machines. The extra `device` names the family in
`ROCM_SDK_TARGET_FAMILY`, else of the GPU that `offload-arch` on PATH reports, else a default. The
archive also has the result of AMD's own machine, in PKG-INFO, which the wheel gets here. The cell
answers two of its extras. `device-all`, which torch's wheels of pytorch.org demand and which names
the code of 25 GPUs, names that of the cell's targets. `device`, which depends on the machine, is
removed. AMD narrows releases in the same way.

Sources: ROCm/TheRock @89553ce, build_tools/packaging/python/templates/rocm/setup.py and
src/rocm_sdk/_dist_info.py (`build_per_target_extras`, `determine_target_family`), and
build_tools/packaging/promote_packages.py (`--multi-arch-targets`, over PKG-INFO too).

An image that requires the code of every GPU by itself is refused: its index has a package for each.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

from warpfront.errors import LockError
from warpfront.wheels.core_metadata import (
    Distribution,
    applies,
    foreign_requirement,
    metadata_text,
    parse_metadata,
)
from warpfront.wheels.lock.values import LockInputs
from warpfront.wheels.store.archives import unpack, write_wheel

ROCM: Final = "rocm"
_DEVICE = "rocm-sdk-device-"
_EVERY_DEVICE, _OWN_DEVICE = "device-all", "device"
_LINUX = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"}


def rocm_wheel(sdist: Path, folder: Path, targets: tuple[str, ...]) -> Path:
    """Return the wheel of the archive `sdist`, in `folder`, with the device code of `targets`.
    Same archive and targets, same bytes.

    Raise `LockError` for an archive that does not say what it demands, or has not those targets.
    """
    root = unpack(sdist, folder / "unpacked")
    metadata, demands = _metadata(root, sdist.name)
    info = f"{ROCM}-{metadata.version}.dist-info"
    source = root / "src"
    content = {
        path.relative_to(source).as_posix(): path.read_bytes()
        for path in sorted(source.rglob("*"))
        if path.is_file() and not path.relative_to(source).parts[0].endswith(".egg-info")
    }
    if not content:
        raise LockError(f"{sdist.name}: has no packages below src/")
    entry_points = source / f"{ROCM}.egg-info" / "entry_points.txt"
    if entry_points.is_file():
        content[f"{info}/entry_points.txt"] = entry_points.read_bytes()
    wheel = folder / f"{ROCM}-{metadata.version}-py3-none-any.whl"
    return write_wheel(wheel, _narrowed(metadata, demands, targets, sdist.name), content)


def _metadata(root: Path, name: str) -> tuple[Distribution, list[Requirement]]:
    """Return the archive's own metadata and its demands, of the machine that packed it."""
    try:
        metadata = parse_metadata((root / "PKG-INFO").read_text("utf-8"))
        demands = [foreign_requirement(text) for text in metadata.requires]
    except (OSError, ValueError) as error:
        raise LockError(f"{name}: its PKG-INFO cannot be read: {error}") from error
    if metadata.name == ROCM and demands:
        return metadata, demands
    raise LockError(
        f"{name}: its PKG-INFO does not say what {ROCM} demands",
        hint="only running its setup.py would tell, and that asks this machine for its GPU",
    )


def _narrowed(
    metadata: Distribution, demands: list[Requirement], targets: tuple[str, ...], name: str
) -> str:
    device_names = {f"{_DEVICE}{target}" for target in targets}
    offered = {demand.name for demand in demands if applies(demand, _LINUX, _EVERY_DEVICE)}
    if lacking := sorted(target for target in targets if f"{_DEVICE}{target}" not in offered):
        has = ", ".join(sorted(extra.removeprefix(_DEVICE) for extra in offered)) or "none"
        raise LockError(
            f"{name}: has no device code for {', '.join(lacking)}; it has {has}",
            hint="leave those targets out of the row in matrix.yaml",
        )
    narrowed = [
        demand
        for demand in demands
        if not applies(demand, _LINUX, _OWN_DEVICE)
        and (not applies(demand, _LINUX, _EVERY_DEVICE) or demand.name in device_names)
    ]
    extras = tuple(extra for extra in metadata.extras if extra != _OWN_DEVICE)
    requires = tuple(map(str, narrowed))
    return metadata_text(
        Distribution(name=ROCM, version=metadata.version, requires=requires, extras=extras)
    )


def refuse_every_device(inputs: LockInputs) -> None:
    """Raise `LockError` where a requirement of the image has the extra `device-all`."""
    for text in inputs.requirements if inputs.index and inputs.targets else ():
        if _EVERY_DEVICE in Requirement(text).extras:
            raise LockError(
                f"{inputs.cell_id}: {text} asks for the code of every GPU, gigabytes of wheels",
                hint="leave the extra out: the row's targets "
                f"({' '.join(inputs.targets)}) bring theirs",
            )
