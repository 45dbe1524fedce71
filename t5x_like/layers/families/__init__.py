"""What the models of a family share: the way from a batch to its loss."""
