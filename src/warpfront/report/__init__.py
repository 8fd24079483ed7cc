"""What is said about the cells: rows of values, one module per form they are shown in. Words."""
