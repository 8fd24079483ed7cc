"""An engine for numeric checks: a catalogue, axes, an oracle, a bound."""
