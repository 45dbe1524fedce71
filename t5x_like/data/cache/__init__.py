"""Caches of tokens on disk, which are written once, whole, and serve all objectives and lengths."""
