"""WHAT A TOOL IS: frozen data, no I/O."""
