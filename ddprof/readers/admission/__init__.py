"""Admission: from what the user typed to sources, with the format, job and rank of each file."""
