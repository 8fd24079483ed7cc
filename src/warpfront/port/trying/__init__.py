"""What a program lacks in an image, read from how it ended; and what would be installed for it.
Pure.
"""
