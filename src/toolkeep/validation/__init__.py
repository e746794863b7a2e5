"""DOES THE CALL FIT: is this schema safe, and do these arguments satisfy it."""
