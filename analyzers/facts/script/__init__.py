"""The stacks of a rank's host threads as a call tree, and the calls in it that occupy the host."""
