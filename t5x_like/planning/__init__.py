"""The needs of a training step on hardware that is not here: memory, time, traffic."""
