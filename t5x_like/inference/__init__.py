"""Uses of trained models: decoding and filling in blanks."""
