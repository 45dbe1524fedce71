"""Heads: modules that turn states into predictions."""
