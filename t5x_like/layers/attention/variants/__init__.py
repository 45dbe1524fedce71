"""Attention with more projections than queries, keys and values, a kind a file."""
