"""Remember it: entries, the tree over them, signed checkpoints, proofs and what verifying finds. No I/O."""
