"""The engine for Python source. Pure."""

from warpfront.port.scan.python.detecting import reads, rule_matches

__all__ = ["reads", "rule_matches"]
