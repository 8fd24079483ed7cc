"""The old place of `warpfront_checks`: kept for one release."""
