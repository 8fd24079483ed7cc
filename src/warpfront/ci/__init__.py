"""CI: its jobs, their configuration for CI services, and the artifacts between them. Words."""
