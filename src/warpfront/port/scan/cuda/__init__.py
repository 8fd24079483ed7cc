"""The engine for C, C++, CUDA and HIP. Pure."""

from warpfront.port.scan.cuda.reading_code import portable_names_of, reads, sightings

__all__ = ["portable_names_of", "reads", "sightings"]
