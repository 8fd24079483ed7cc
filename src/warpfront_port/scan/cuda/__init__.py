"""The engine for C, C++, CUDA and HIP. Pure."""

from warpfront_port.scan.cuda.headers import header_facts
from warpfront_port.scan.cuda.reading_code import reads, rule_matches

__all__ = ["header_facts", "reads", "rule_matches"]
