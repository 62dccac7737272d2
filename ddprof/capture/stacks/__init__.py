"""Record of which line of the script a process was in: samples of its stacks, counted over the run and timed in
windows."""
