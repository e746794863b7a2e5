"""JSON values: canonical form, pointers, conversion, YAML, immutability."""
