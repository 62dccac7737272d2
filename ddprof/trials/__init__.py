"""The record of a tuning: its trials, the certainty of each gain, the answer, and sentences on them."""
