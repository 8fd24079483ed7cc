"""Golden vectors: what one device computed, checked on another."""
