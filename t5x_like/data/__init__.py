"""The data of a run: corpora, caches, samples and batches."""
