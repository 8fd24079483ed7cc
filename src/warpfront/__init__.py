"""warpfront: multi-vendor GPU container images for PyTorch, planned, built and proven from one matrix."""

__version__ = "0.1.0"
