"""Architectures from a library's own registry, shrunk, with random weights: does the device run
other people's models, and run them right?
"""
