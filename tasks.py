"""The tasks of this project: warpfront's own, over this repository's matrix.yaml. See `invoke
--list`.
"""

from warpfront.cli.tasks import namespace

__all__ = ["namespace"]
