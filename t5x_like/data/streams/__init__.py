"""Rows in their order: of a task, of a mixture, of a step."""
