"""Porting: what a source tree will meet on another vendor's devices, before it is there. Words."""
