"""Sources of text: files and TFDS, and the division of text into documents and sentences."""
