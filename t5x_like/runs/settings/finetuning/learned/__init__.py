"""What a fine-tuned model learns: one task, or several."""
