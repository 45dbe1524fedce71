"""Held-out metrics, and the baselines that a trained model must beat."""
