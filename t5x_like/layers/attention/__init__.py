"""Attention: heads, kernels, masks and positions."""
