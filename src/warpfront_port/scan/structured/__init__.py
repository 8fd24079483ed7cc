"""The engine for files that are neither Python nor C. Pure."""

from warpfront_port.scan.structured.formats import (
    kind_of,
    lists_requirements,
    reads,
    rule_matches,
    torchless,
)

__all__ = ["kind_of", "lists_requirements", "reads", "rule_matches", "torchless"]
