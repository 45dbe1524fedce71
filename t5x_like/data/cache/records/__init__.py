"""The files beside caches: records of tasks, their objectives and metrics, and examples."""
