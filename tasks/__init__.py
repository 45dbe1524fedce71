"""Corpora and tasks: one data set, or one kind of user file, a module."""
