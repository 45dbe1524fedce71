"""What a model knows of language without being trained on a task."""
