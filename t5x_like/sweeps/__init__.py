"""Many runs that differ in a few settings: which there are, and what came out."""
