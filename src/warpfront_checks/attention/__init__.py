"""Attention backends of a device, and each one's result for each kind of case."""
