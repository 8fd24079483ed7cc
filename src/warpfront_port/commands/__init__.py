"""Commands of the port group: each reads a project, works on it and returns values."""
