"""The lines of a project's own files that would move torch on some cells, and
their replacements. Pure.

read -> declared -> judged on every stack of the matrix -> findings. Files come in as text; uv's dry
run of them happens outside this package and comes in as values.
"""
