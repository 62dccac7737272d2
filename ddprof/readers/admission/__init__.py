"""Admission: from what the user typed to sources. What each file is, which files are one job, and who is which rank."""
