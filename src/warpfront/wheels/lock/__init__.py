"""Locks: every wheel of a cell by hash. Words."""
