"""Attention in which a query sees the keys near it, and few others."""
