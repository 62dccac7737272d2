"""Measurements of ddprof itself: the generated corpus with known truth, and the results kept from running it."""
