"""What is said of a digest: in-toto statements, written and read back. Pure."""
