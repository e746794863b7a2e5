"""WHICH TOOLS EXIST: definitions checked, compiled and found by name."""
