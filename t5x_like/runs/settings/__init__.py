"""Settings of a run that follow others, and settings that nothing reads."""
