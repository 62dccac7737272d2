"""Pipelines: stages, passes per step, the bubble, and the pace of their devices."""
