"""What the models of a family share: from a batch to its loss."""
