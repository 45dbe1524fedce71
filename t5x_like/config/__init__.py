"""Gin configurations: from files and flags to objects, and from objects to text."""
