"""The tasks of this project: warpfront's own, over its matrix.yaml. See `invoke --list`."""

from warpfront.tasks import namespace

__all__ = ["namespace"]
