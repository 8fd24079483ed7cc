"""The names that must not come, and those of a torch stack: names.json of host and images."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from .channels import requirement
from .policy import GuardError, Policy, Shim

_NAMES: Mapping[str, Any] = json.loads(
    Path(__file__).with_name("names.json").read_text(encoding="utf-8")
)
_CUDA_SUFFIX = re.compile(r"(?P<stem>nvidia-[a-z0-9-]+)-cu[0-9]+\Z")


def stack_patterns(toolkit: str) -> tuple[str, ...]:
    """Return fnmatch patterns of the distributions of a torch stack for a toolkit."""
    return (*_NAMES["stack"], *_NAMES.get(f"{toolkit}_stack", ()))


def sentinels(toolkit: str, protected: Iterable[str]) -> dict[str, str]:
    """Return names that must never arrive -> the reason, fit for a local version label. Such a
    distribution would own files of the stack, or be another.

    On CUDA another release's name of a protected library owns the same folder (`nvidia-cudnn-cu12`
    and `-cu13` both own `nvidia/cudnn/`). On other vendors nothing of torch is in the folders of
    CUDA's libraries. Other tritons own `triton/` too; `triton` itself is not forbidden if a shim
    answers for it.
    """
    distributions = set(protected)
    reasons = dict.fromkeys(_NAMES["other_torches"], f"{toolkit}.image.has.its.torch.already")
    for vendor, names in _NAMES["triton"].items():
        if vendor != "cuda" or (toolkit == "rocm" and not _other_tritons(distributions)):
            reasons |= dict.fromkeys(names, f"{toolkit}.image.has.another.triton")
    matches = (_CUDA_SUFFIX.match(name) for name in distributions if toolkit == "cuda")
    for match in filter(None, matches):
        why = f"same.folder.as.{match[0].replace('-', '.')}"
        suffixes = _NAMES["nvidia"]["suffixes"]
        reasons |= {f"{match['stem']}{suffix}": why for suffix in suffixes}
    return {name: why for name, why in sorted(reasons.items()) if name not in distributions}


def triton_shims(protected: Mapping[str, str]) -> tuple[Shim, ...]:
    """Return the shim for `triton`, which packages ask for, if the stack's has another name."""
    real = _other_tritons(protected)
    if not real or "triton" in protected:
        return ()
    name, version = real[0], protected[real[0]]
    shim = f"{version.partition('+')[0]}+{name.replace('-', '.')}"
    return (Shim(name="triton", version=shim, requires=requirement(name, version)),)


def _other_tritons(distributions: Collection[str]) -> list[str]:
    """Return the tritons of `distributions` under another name than `triton`."""
    names_of_vendors = (names for vendor, names in _NAMES["triton"].items() if vendor != "cuda")
    return [name for names in names_of_vendors for name in names if name in distributions]


def default_policy(site_packages: Path, distributions: Iterable[str]) -> Policy:
    """Return `adopt`'s policy if none was written: the installed stack, `there` by name."""
    toolkit = read_toolkit(site_packages / "torch" / "version.py")
    return Policy(
        cell="",
        title=f"adopted from {site_packages}",
        adopt=stack_patterns(toolkit),
        sentinels=sentinels(toolkit, distributions),
    )


def read_toolkit(version_file: Path) -> str:
    """Return the toolkit of a torch by its `version.py`, without importing it."""
    try:
        text = version_file.read_text(encoding="utf-8")
    except OSError as error:
        raise GuardError(f"{version_file}: {error.strerror}: no torch to adopt here") from error
    for name, toolkit in (("hip", "rocm"), ("cuda", "cuda"), ("xpu", "xpu")):
        if re.search(rf"^{name}\b[^=\n]*= *['\"]", text, flags=re.MULTILINE):
            return toolkit
    return "synapseai" if (version_file.parents[1] / "habana_frameworks").is_dir() else "cpu"


INSTALLER = "warpfront-guard"
_WHEEL = (
    "Wheel-Version: 1.0\nGenerator: warpfront-guard\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
)


# Packages ask for `triton`; what fits the image's torch may have another name, and both own the
# folder `triton/`. Without a shim such packages could only be refused.
def shim_files(shim: Shim) -> dict[str, str]:
    """Return path below site-packages -> text: what installing a wheel of the shim would leave,
    WHEEL and RECORD too, for without them uv calls it broken.
    """
    folder = f"{shim.name.replace('-', '_')}-{shim.version}.dist-info"
    metadata = (
        f"Metadata-Version: 2.1\nName: {shim.name}\nVersion: {shim.version}\n"
        f"Summary: Stands for {shim.requires}, which this image has in its place\n"
        f"Requires-Dist: {shim.requires}\n"
    )
    files = {"METADATA": metadata, "WHEEL": _WHEEL, "INSTALLER": f"{INSTALLER}\n"}
    record = ""
    for name, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())
        record += f"{folder}/{name},sha256={digest.rstrip(b'=').decode()},{len(text.encode())}\n"
    files["RECORD"] = f"{record}{folder}/RECORD,,\n"
    return {f"{folder}/{name}": text for name, text in files.items()}
