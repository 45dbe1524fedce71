"""The protocols between the parts of t5x_like: data, models, runs.

Importable by every package: nothing but NumPy is imported at run time.
"""
