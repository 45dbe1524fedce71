"""Optimizers, schedules, and which parameters they move."""
