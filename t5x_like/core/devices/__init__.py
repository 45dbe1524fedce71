"""Devices: those that a run has, what their memory takes, and what their makers publish."""
