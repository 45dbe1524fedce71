"""Where text comes from: files, TFDS, and how documents and sentences are told apart."""
