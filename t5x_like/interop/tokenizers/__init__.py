"""Reads and writes vocabularies as the tokenizer files of Hugging Face."""
