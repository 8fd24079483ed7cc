"""The nox sessions, by their old name: importing them registers them."""

from warpfront.cli import sessions

__all__ = ["sessions"]
