"""The `stack` session: other people's packages in an image, and whether they run as they should."""
