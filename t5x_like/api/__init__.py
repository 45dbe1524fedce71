"""The library for users in Python: from recipes to runs, from directories to models."""
