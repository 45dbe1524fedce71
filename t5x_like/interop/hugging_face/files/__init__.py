"""Files of a model, at the hub and on a disk."""
