"""The status service: which status every run has, and who is told."""
