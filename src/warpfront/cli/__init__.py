"""Doors: invoke's tasks, nox's sessions, and what people see while either runs."""

import sys

# invoke switches it off, and would have all of this compiled anew for every command.
sys.dont_write_bytecode = bool(sys.flags.dont_write_bytecode)
