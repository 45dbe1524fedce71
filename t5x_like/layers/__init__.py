"""Shared parts of models in Flax NNX: they know arrays and axis names, but no model or task."""
