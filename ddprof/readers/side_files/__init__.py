"""Side files: what lies beside a trace in a run folder and belongs to it (docs/run-folder.md)."""
