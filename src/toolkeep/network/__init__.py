"""Egress control: which hosts may be contacted, at which addresses, within which budget."""
