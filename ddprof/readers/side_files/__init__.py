"""Side files of a run folder: the files beside a trace that belong to it (docs/run-folder.md)."""
