"""Names, formats and requests of a run folder, shared by the launching process and the ranks."""
