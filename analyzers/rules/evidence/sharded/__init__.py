"""Sharded parameters: what their units cost, and how they are gathered ahead."""
