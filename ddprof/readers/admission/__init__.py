"""Admission: sources for the paths that the user typed, with the format, job and rank of each file."""
