"""Capabilities beside the core, one room each."""
