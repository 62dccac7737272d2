"""Detection of a hang from outside: ranks are asked for their stacks, and the answers kept."""
