"""Other tools over the labelled runs: what they would lead a reader to, what they cost."""
