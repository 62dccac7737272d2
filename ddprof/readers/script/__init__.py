"""Record of which line of the script a host thread was in: Python frames of the trace, folded to stacks over time."""
