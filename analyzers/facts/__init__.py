"""RankTrace to RankFacts: one rank at a time, without knowledge of the others."""
