"""The engine for C, C++, CUDA and HIP. Pure."""

from warpfront.port.scan.cuda.headers import (
    BEGUN,
    NO_CUDACC,
    HeaderFacts,
    has_code,
    heard_of,
    is_most,
    is_ported,
    own_macros,
    runtime_headers,
    shared_switches,
    vendor_macros,
)
from warpfront.port.scan.cuda.reading_code import header_facts, reads, sightings

__all__ = [
    "BEGUN",
    "NO_CUDACC",
    "HeaderFacts",
    "has_code",
    "header_facts",
    "heard_of",
    "is_most",
    "is_ported",
    "own_macros",
    "reads",
    "runtime_headers",
    "shared_switches",
    "sightings",
    "vendor_macros",
]
