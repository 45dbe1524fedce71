"""evaluation of t5x_like."""
