"""From the tokens of a cache to rows: planned, drawn, packed."""
