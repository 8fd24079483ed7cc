"""The static scanner: source code that breaks on another vendor's device. Pure.

Text goes to an engine (`python`, `cuda`, `structured`), which yields `Match`es: a rule, a place and
the gate in front of the code. `judge` turns matches into `Finding`s for one target by the rule
catalogue (`data/rules/<ID>.toml`). Reading trees is `trees`' work, joining is `pipeline`'s.
"""
