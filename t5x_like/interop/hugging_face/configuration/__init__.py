"""The settings of a config.json, and those of them that have no counterpart."""
