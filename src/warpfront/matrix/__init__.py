"""From matrix.yaml to cells: language, expansion, what fits together, vendors, the plan. Words."""
