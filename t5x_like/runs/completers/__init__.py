"""Objects that add to a batch what it lacks, one kind a file: a teacher adds its predictions."""
