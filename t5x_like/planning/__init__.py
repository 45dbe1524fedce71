"""What a training step would need on hardware that is not here: memory, time, traffic."""
