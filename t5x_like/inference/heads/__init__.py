"""What heads of tasks answer."""
