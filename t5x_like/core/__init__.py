"""Modules that every package may import: protocols, meshes, and small shared functions."""
