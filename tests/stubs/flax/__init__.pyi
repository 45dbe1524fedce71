"""The names of flax that we use, with types, so that mypy sees a misspelt attribute of a model."""
