"""The matrix: language, expansion to cells, the compat table, vendors, the plan. Words."""
