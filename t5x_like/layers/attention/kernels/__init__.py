"""Pallas kernels of attention, and what they share."""
