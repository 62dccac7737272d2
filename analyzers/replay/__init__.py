"""Replay: simulate the recorded run with a cause removed."""
