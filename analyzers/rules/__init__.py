"""One file per finding identifier."""
