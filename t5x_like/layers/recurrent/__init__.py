"""Recurrent layers, as loops over time that are compiled once."""
