"""Distributions without files that answer for a name: `triton` on ROCm.

Packages ask for `triton`; what fits the image's torch has another name, and both own the folder
`triton/`. Without a shim such packages could only be refused.
"""

from __future__ import annotations

import base64
import hashlib

from .policy import Shim

INSTALLER = "warpfront-guard"
_WHEEL = (
    "Wheel-Version: 1.0\nGenerator: warpfront-guard\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
)


def shim_files(shim: Shim) -> dict[str, str]:
    """Return path below site-packages -> text: what installing a wheel of the shim would leave,
    WHEEL and RECORD too, for without them uv calls it broken.
    """
    folder = f"{shim.name.replace('-', '_')}-{shim.version}.dist-info"
    files = {"METADATA": _metadata(shim), "WHEEL": _WHEEL, "INSTALLER": f"{INSTALLER}\n"}
    record = "".join(f"{folder}/{name},{_hash(text)}\n" for name, text in files.items())
    files["RECORD"] = f"{record}{folder}/RECORD,,\n"
    return {f"{folder}/{name}": text for name, text in files.items()}


def _metadata(shim: Shim) -> str:
    return (
        f"Metadata-Version: 2.1\nName: {shim.name}\nVersion: {shim.version}\n"
        f"Summary: Stands for {shim.requires}, which this image has in its place\n"
        f"Requires-Dist: {shim.requires}\n"
    )


def _hash(text: str) -> str:
    data = text.encode()
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"sha256={digest},{len(data)}"
