"""Changes: what a fix changes in the replay: one table of change kinds, and their mechanisms."""
