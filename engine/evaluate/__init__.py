"""How good a checkpoint is: KL, top-1 mismatch and draft ranks against the source weights."""
