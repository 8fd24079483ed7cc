"""Statements about a digest: in-toto statements, written and parsed. Pure."""
