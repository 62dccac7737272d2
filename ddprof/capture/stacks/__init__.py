"""Stack samples of a process, counted by script line over the run and timed in windows."""
