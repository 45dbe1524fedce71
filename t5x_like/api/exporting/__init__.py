"""Models as directories that transformers and PEFT open."""
