"""The container engine: `protocol` is its interface, `docker` the implementation. Words."""
