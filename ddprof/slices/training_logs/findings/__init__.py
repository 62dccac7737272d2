"""Findings from the tables of a text log, whatever its format."""
