"""Tasks with answers: their examples, the answers of a model, and their metrics."""
