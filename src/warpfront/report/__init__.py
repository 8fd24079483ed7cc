"""What is said about the cells: rows of values, and one module per form they are shown in."""
