"""What a checkpoint holds, how it is checked, and how a run starts from another's."""
