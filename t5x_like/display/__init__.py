"""Examples and parameters as people read them."""
