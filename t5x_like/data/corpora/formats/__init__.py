"""Formats of files of text, and the values of their cells."""
