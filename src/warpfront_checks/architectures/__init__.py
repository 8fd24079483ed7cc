"""Architectures of a library's own registry, shrunk, with random weights: do they run right?"""
