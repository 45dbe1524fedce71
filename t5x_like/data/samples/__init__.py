"""Samples and rows of the tokens of a cache, with plans, noise and packing."""
