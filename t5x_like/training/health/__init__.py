"""Whether a run still learns: bad steps, divergence, early stopping."""
