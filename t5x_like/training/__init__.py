"""The training loop: its step, logs, metrics, checkpoints and optimizers."""
