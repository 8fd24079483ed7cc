"""Which ways to compute attention a device has, and what each does with each kind of case."""
