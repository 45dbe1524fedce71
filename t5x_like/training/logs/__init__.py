"""The logs of a run: lines for people, `metrics.jsonl` and TensorBoard files; curves from them."""
