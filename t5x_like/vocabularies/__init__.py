"""Vocabularies: text to ids and back, by bytes, characters, pieces or subwords."""
