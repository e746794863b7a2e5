"""Text for people and models: display, Unicode checks, refusals, near names."""
