"""Tokens on disk: written once, whole or not at all, and read by every objective and length."""
