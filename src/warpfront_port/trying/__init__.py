"""What a program lacks in an image, and what would be installed for it. Pure."""
