"""data of t5x_like."""
