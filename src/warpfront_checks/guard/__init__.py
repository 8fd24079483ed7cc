"""The files that an image carries so that its torch stays the torch it was built with.

Copied into images as `warpfront_guard` (standard library only, Python 3.10 and newer), and
run from the host's copy by the `load` session, so that a guard taken out of an image cannot
vouch for itself.
"""
