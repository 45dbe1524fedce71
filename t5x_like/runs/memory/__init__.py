"""The memory that a run's steps need, by arithmetic, and what follows from it."""
