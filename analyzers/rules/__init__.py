"""One file per finding identifier, ending in RULE; what several of them use is in `evidence/`."""
