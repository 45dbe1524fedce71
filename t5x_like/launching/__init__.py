"""Launchers: what they share, and one engine a file in `engines/`; `t5x_like launch` uses them."""
