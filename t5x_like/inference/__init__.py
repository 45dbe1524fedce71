"""What trained models are used for: decoding and filling in blanks."""
