"""RankTrace to RankFacts: one rank at a time, no other rank in sight."""
