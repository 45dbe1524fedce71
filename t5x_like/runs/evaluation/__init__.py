"""The evaluation of a run: baselines beside it, and the metrics of its tasks."""
