"""The common parts of objectives: their geometry, their formats, words and sentences."""
