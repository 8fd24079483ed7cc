"""The old name of `warpfront_checks`: kept for one release."""

import warnings

warnings.warn(
    "warpfront.inside.checks is now warpfront_checks; the old name goes with the next release",
    FutureWarning,
    stacklevel=2,
)
