"""What is checked before a run does any work."""
