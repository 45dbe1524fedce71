"""The common parts of a family's models: the way from a batch to its loss."""
