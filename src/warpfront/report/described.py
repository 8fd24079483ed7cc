"""One line for people about what a step made of one cell. Pure."""

from __future__ import annotations

from warpfront.model import BuiltImage, RenderedImage, WheelLock
from warpfront.report.sizes import readable_size


def describe(result: object) -> str:
    """What was locked, rendered or built, in words."""
    match result:
        case WheelLock():
            return f"locked, {len(result.wheels)} wheels, {readable_size(result.size_bytes)}"
        case RenderedImage():
            return f"rendered {', '.join(result.context)}"
        case BuiltImage(reused=True):
            return f"reused {result.reference} ({readable_size(result.size_bytes)})"
        case BuiltImage():
            size = readable_size(result.size_bytes)
            return f"built {result.reference} ({size}) in {result.seconds:.0f} s"
        case _:
            return str(result)
