"""What every package of ours may import: protocols, meshes, and small things said once."""
