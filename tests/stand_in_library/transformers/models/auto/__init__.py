"""A stand-in, as its parent says."""
