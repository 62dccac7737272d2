"""Measurements of the launching process on its host: counters, GPUs, their links."""
