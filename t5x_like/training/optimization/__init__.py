"""Optimizers, schedules, and the choice of the parameters that they change."""
