"""Extent to which findings can be believed: how often findings like them were right where the truth is known."""
