"""Results stage: raw output is validated, normalized and hashed."""
