"""A running job that hangs: noticed from outside, its ranks asked where they are, the answers kept."""
