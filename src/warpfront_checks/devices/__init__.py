"""Every visible device, and what devices say to each other."""
