"""Facts of a rank that are kept for the next analysis: one file a rank, in a folder that has a bound."""
