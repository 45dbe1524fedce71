"""One model of several, or of one and its adapters."""
