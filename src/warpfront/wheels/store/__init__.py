"""Wheels on this machine: fetched, built, patched and unpacked. Words."""
