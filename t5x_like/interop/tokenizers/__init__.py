"""Vocabularies from and to the tokenizer files of Hugging Face."""
