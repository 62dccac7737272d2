"""Companions: the files of a run folder that belong to a trace (docs/run-folder.md)."""
