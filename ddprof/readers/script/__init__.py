"""Script lines of host threads over time: the trace's Python frames folded to stacks."""
