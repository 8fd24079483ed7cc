"""The modules that a program lacks in an image, and the packages that bring them. Pure."""
