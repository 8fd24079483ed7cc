"""Release: registries, and what is said to them. Words."""
