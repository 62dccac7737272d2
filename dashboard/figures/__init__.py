"""Table to figure, pure functions."""
