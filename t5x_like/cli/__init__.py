"""cli of t5x_like."""
