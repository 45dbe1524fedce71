"""What vocabularies do to text before and after it becomes ids."""
