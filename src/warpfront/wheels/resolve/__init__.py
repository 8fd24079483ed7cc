"""Resolution of requirements to wheels, by uv. Words."""
