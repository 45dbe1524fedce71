"""Reads and writes the files of Hugging Face's tokenizers."""
