"""What several steps of the path are made of. Takes values, never a workspace; a step may call it,
and it calls no step.
"""
