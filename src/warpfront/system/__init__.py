"""The machine: other programs, files at rest, YAML, clock and commit, source trees. Words."""
