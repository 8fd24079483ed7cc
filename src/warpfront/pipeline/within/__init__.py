"""Parts that several steps share. They take values, never a workspace, and call no step."""
