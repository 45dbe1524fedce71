"""training of t5x_like."""
