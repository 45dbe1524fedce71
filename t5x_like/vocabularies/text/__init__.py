"""The changes that vocabularies make to text before encoding and after decoding."""
