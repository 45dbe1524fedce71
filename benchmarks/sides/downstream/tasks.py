"""Text-to-text tasks that measure findings: files in the working directory."""

from t5x_like.tasks.text import text

for name in ("sst2", "e2e"):
    text(name, f"data/{name}/train.jsonl", validation_files=f"data/{name}/dev.jsonl")
