"""The processes of a run: joining, agreement, and leaving together."""
