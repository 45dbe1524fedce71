"""Caches made by Apache Beam: on many machines, and the same in every byte."""
