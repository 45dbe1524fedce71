"""The smallest parts: matrices, norms, embeddings, dropout, scores of tokens."""
