"""Registries: the only room that speaks HTTP with them (OCI distribution specification). Words."""
