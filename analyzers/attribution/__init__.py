"""Whose a time is: one rank's, a few ranks' or that of all, and whether the others wait for it."""
