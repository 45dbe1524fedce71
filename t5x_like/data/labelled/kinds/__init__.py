"""Kinds of labels, one a file: how files show them, and what is checked before training."""
