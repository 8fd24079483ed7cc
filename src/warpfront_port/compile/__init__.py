"""What a vendor's own compiler says of a source tree: which files, with which commands, and what
its messages mean. Text in, values out; the compilers run in containers (`checks.compiling`). Pure.
"""
