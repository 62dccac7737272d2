"""Fixes as an edit of the script: a unified diff at the lines that create the objects."""
