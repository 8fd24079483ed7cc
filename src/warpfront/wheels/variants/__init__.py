"""Wheel variants (PEP 825, provisional): loaded where a matrix or a lock names some. Words."""
