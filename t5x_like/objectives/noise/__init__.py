"""Ways to corrupt tokens, which objectives choose from."""
