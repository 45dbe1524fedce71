"""Files of labelled rows, which say themselves what there is to learn."""
