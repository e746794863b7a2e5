"""A worker: runs calls that servers elsewhere have decided and recorded, confined by its own sandbox."""
