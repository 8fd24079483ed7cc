"""Doors: invoke's tasks, nox's sessions, and what people see while either runs."""
