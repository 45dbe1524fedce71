"""Trained runs, opened again: their model, its metrics, samples and predictions."""
