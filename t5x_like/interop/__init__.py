"""Weights and tokenizers in and out: Hugging Face directories, T5X checkpoints."""
