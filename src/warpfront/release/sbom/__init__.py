"""SBOM: the parts of an image, as documents that other programs read. Pure."""
