"""Trace windows: opening, recording, and the files that remain."""
