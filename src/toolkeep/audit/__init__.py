"""Audit log: hash-chained entries, Merkle tree, signed checkpoints, receipts and verification. No I/O."""
