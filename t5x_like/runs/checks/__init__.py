"""The checks before a run does any work."""
