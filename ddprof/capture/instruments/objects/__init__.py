"""The objects of a job that settings belong to: who makes them."""
