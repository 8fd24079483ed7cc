"""The input and output of a vendor's own compiler for a source tree: its files, commands and
messages. Text in, values out; the compilers run in containers (`checks.compiling`). Pure.
"""
