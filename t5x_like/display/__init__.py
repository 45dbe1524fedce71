"""Examples and parameters as text and tables for people."""
