"""The engine for what is neither Python nor C. Pure."""

from warpfront.port.scan.structured.formats import reads, sightings

__all__ = ["reads", "sightings"]
