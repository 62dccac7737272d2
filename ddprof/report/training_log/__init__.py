"""The reading of a training log, as text and as JSON."""
