"""How a model speaks: definitions out, calls in, results out, one file for each vendor."""
