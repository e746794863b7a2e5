"""The `/v1` API: one file for each resource, with its routes."""
