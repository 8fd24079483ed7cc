"""Wheels: what goes into an image. Asked for, resolved, locked, fetched, kept by content. Words."""
