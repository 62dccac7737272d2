"""Facts of a rank that are kept for the next analysis: one Arrow file a rank, in a folder that has a bound."""
