"""Findings from the tables of a text log, however its lines were written."""
