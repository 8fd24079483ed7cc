"""The engine for what is neither Python nor C. Pure."""

from warpfront.port.scan.structured.formats import kind_of, reads, sightings, torchless

__all__ = ["kind_of", "reads", "sightings", "torchless"]
