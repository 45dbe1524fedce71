"""The library as people use it from Python: recipes to runs, directories to models."""
