"""The engine for Python source. Pure."""

from warpfront.port.scan.python.detecting import reads, sightings, sources_named

__all__ = ["reads", "sightings", "sources_named"]
