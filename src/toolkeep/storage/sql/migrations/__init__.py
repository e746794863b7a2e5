"""The migrations of the store, in order, and what they share."""
