"""Changes that a replay simulates: one table of kinds, and their mechanisms."""
