"""The engine for Python source. Pure."""

from warpfront.port.scan.python.detecting import reads, sightings

__all__ = ["reads", "sightings"]
