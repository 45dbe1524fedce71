"""Writing token by token: greedy, by chance and by beam search."""
