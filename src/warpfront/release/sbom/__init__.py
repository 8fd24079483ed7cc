"""What an image is made of, as documents that other programs read. Pure."""
