"""The way out: which hosts may be reached, at which addresses, and for how much."""
