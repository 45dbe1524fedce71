"""t5x_like: pretraining of encoder and encoder-decoder language models in JAX."""

__version__ = "0.1.0"
