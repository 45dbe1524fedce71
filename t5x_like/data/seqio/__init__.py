"""The interface to SeqIO: its tasks, sources, vocabularies and steps."""
