"""Single operations by name: those that a ROCm backend claims to have and more, each with inputs,
edges and the rule that judges it. `table.json` is the list; a module per family makes the cases.
"""
