"""What vocabularies do to text before encoding and after decoding."""
