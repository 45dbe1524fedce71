"""The edge to SeqIO: its tasks, sources, vocabularies and steps."""
