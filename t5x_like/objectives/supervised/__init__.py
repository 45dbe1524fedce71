"""Objectives whose examples come from people: each reads columns of a table."""
