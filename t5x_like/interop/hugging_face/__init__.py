"""Models and their weights from and to Hugging Face, a module a family."""
