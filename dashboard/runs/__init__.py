"""Opened runs, runs still being written, and what an address selects of them."""
