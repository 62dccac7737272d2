"""Facts that the launching process and the ranks both know: names, formats and requests of a run folder."""
