"""Avoidable communication in words: its cost, its line, and the replacement."""
