"""Checks of operations that no oracle of one call can make."""
