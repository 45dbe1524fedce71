"""Losses, and what is counted beside them."""
