"""The engine for files that are neither Python nor C. Pure."""

from warpfront_port.scan.structured.formats import kind_of, reads, rule_matches

__all__ = ["kind_of", "reads", "rule_matches"]
