"""The engine for Python source. Pure."""

from warpfront_port.scan.python.detecting import reads, rule_matches

__all__ = ["reads", "rule_matches"]
