"""Losses, and the counts that are reported beside them."""
