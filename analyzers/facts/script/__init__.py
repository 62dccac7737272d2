"""The stacks of a rank's host threads as a tree of calls, and what in it occupies the host."""
