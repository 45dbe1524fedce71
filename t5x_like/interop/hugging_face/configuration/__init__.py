"""What a config.json says, and what of it has no counterpart."""
