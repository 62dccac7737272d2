"""The record of a tuning: its trials, how sure each gain is, the answer, and the sentences on them."""
