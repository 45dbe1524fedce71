"""The files of tasks besides their caches: records, and examples to evaluate on."""
