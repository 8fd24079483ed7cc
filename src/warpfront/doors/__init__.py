"""The old name of `warpfront.cli`: kept for one release."""

import warnings

warnings.warn(
    "warpfront.doors is now warpfront.cli; the old name goes with the next release",
    FutureWarning,
    stacklevel=2,
)
