"""One file per finding id, ending in RULE; code that several rules share is in `evidence/`."""
