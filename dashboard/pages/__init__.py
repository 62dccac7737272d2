"""Dash pages: thin wiring only."""
