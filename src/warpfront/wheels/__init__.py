"""Wheels of images: required, resolved, locked, fetched, stored by content. Words."""
