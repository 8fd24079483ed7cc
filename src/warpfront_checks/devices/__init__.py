"""Checks of every visible device, and of collectives between devices."""
