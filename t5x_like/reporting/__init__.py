"""A run read afterwards: its curves as pictures, and a report of all that it has written down."""
