"""Optimizers with a method of their own, one a file."""
