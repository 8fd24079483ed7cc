"""The tasks, by their old name."""

from warpfront.cli.tasks import namespace

__all__ = ["namespace"]
