"""How likely a model finds texts, targets and words."""
