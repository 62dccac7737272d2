"""Formats: one file (or room) per file format."""
