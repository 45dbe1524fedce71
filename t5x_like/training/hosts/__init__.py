"""What the processes of a run agree on, and how they leave together."""
