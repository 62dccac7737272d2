"""Sharded parameters: the cost of their units, and prefetching."""
