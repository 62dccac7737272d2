"""Columns: events of any format to the tables of a `model.RankTrace`, exact to the nanosecond."""
