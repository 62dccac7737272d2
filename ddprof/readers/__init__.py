"""Files to RankTrace: one file per format, chosen by content."""
