"""CI: which jobs there are, how forges are told, and what jobs hand to each other. Words."""
