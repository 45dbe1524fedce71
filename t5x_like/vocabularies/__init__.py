"""vocabularies of t5x_like."""
