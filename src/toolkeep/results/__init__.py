"""MAKE IT COMPARABLE: raw output is checked, normalised and hashed."""
