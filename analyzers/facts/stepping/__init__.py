"""Step boundaries of a rank: marks, repetition, device time, and one-off work."""
