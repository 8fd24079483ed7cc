"""Single operations by name: the 65 of PyFlame's list and more, each with inputs, edges and the
rule that judges it. `table.json` is the list; a module per family makes the cases.
"""
