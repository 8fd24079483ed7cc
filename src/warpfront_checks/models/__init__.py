"""Whole models on a device, judged layer by layer and from end to end."""
