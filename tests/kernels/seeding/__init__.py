"""Faults that are no kernels: in results, networks, samples and properties; and the selftest."""
