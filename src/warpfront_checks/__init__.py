"""Checks that run inside images: standard library, torch and numpy only, oldest Python first.

Nothing here imports the host side. In goes a claims file (`claims.py`), out comes one results file
per session (`results.py`); both are JSON with a schema number.
"""
