"""The engine for C, C++, CUDA and HIP. Pure."""

from warpfront.port.scan.cuda.headers import knows_hip, runtime_headers, vendor_macros
from warpfront.port.scan.cuda.reading_code import header_facts, reads, sightings

__all__ = ["header_facts", "knows_hip", "reads", "runtime_headers", "sightings", "vendor_macros"]
