"""A run that its own ranks end after a given number of steps, and the parameters that they held then."""
