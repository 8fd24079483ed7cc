"""Requests for the device code of every GPU, which an index has a package each for. Edge."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from rocm_bootstrap.package_metadata import group_package_targets
from rocm_bootstrap.targets import ALL_TARGETS

from warpfront.errors import LockError
from warpfront.wheels.lock.values import LockInputs
from warpfront.wheels.sources import NoAnswer, Site, files_of

if TYPE_CHECKING:
    from warpfront.wheels.transport import Transport

_EVERY_DEVICE = "device-all"
_SDK = "rocm-sdk-device"


def refuse_every_device(inputs: LockInputs, site: Site) -> None:
    """Raise `LockError` where a requirement of the image has the extra `device-all`, with the
    number of targets and the bytes that its index has for it.
    """
    requirements = [
        text for text in inputs.requirements if _EVERY_DEVICE in Requirement(text).extras
    ]
    if not requirements or inputs.index is None or not inputs.targets:
        return
    name = canonicalize_name(Requirement(requirements[0]).name)
    prefixes = (_SDK,) if name == "rocm" else (f"amd-{name}-device", _SDK)
    owners = list(group_package_targets(target.name for target in ALL_TARGETS))
    with site.transport() as transport, ThreadPoolExecutor(8) as pool:
        sizes = {
            prefix: list(
                pool.map(lambda owner: _size(inputs, f"{prefix}-{owner}", transport), owners)  # noqa: B023
            )
            for prefix in prefixes
        }
    count = sum(size > 0 for size in sizes[prefixes[0]])
    total = sum(sum(size) for size in sizes.values())
    raise LockError(
        f"{inputs.cell_id}: {requirements[0]} asks for the code of every GPU: {count} targets, "
        f"{total:,} bytes of wheels on its index",
        hint=f"leave the extra out: the row's targets ({' '.join(inputs.targets)}) bring theirs",
    )


def _size(inputs: LockInputs, name: str, transport: Transport) -> int:
    """Return the bytes of the newest wheel of a device package, 0 where its index has none."""
    assert inputs.index is not None
    index_url = inputs.index.url
    files = files_of(index_url, name, transport, flat=False)
    wheels = {file.version: link for file, link in files if file.tags}
    if not wheels:
        return 0
    newest = wheels[max(wheels)]
    size = newest.size_bytes or transport.size_bytes(newest.url)
    return 0 if isinstance(size, NoAnswer) else size
