"""Shared parts of models in Flax NNX: they know arrays and axis names, no model and no task."""
