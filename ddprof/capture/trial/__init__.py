"""A run that is ended after a given number of steps, by its own ranks, and what they held then."""
