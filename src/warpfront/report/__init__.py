"""Reports on cells: rows of values, and one module per form. Words."""
