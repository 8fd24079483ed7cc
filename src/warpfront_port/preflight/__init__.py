"""What in a project's own files would move torch on which cells, and what to write instead. Pure.

read -> asked -> judged on every stack of the matrix -> findings. Files come in as text; what uv
would do with them is rehearsed elsewhere and comes in as values.
"""
