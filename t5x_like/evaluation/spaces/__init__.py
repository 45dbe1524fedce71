"""Spaces of word vectors: their files, maps from one to another, and what maps are good for."""
