"""Commands apart from the pipeline: doctor, preflight, scan, port, compile. They start from a
project or a tree, and make no image.
"""
