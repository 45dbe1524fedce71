"""What the parts of t5x_like promise each other: data, models, runs.

Importable by every package: nothing but NumPy is imported at run time.
"""
