"""A run as an object: its phases, its checks, its directory, and what opens it again."""
