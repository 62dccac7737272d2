"""A folder of runs over time: the step, what it is made of, and where it changed."""
