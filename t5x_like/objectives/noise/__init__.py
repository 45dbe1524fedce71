"""Kinds of noise that objectives put on tokens."""
