"""Examples as rows of a batch: converters of features, and steps that run late."""
