"""What objectives share: their geometry, their formats, words and sentences."""
