"""Attacks on servers and workers of a fleet, by whoever reaches their NATS."""
