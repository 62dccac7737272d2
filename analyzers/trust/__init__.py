"""Reliability of findings: how often such findings were right where the truth is known."""
