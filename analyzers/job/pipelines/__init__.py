"""Pipelines: their stages, how often these pass forward and backward, the bubble, and how fast their devices are."""
