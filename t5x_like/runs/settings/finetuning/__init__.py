"""Settings of runs that fine-tune: the model, how rows are read, what counts, what trains."""
