"""Step timers in Python and C: bounds of steps, times of phases, and their own cost."""
