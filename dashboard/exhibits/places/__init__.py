"""Exhibits of places in a job: its hosts, pairs of ranks, stages of its pipeline."""
