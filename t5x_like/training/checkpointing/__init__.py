"""Checkpoints: their contents, their checks, and how a run starts from one of another run."""
