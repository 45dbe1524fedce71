"""A run as an object: its phases, its checks, its directory, and functions that open it again."""
