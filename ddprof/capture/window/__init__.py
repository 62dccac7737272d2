"""A trace window: when it opens, what is recorded in it, what is kept of it."""
