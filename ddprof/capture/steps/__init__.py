"""Step timers: where a step begins and ends, and how long its phases took: timers in Python and in C, and what they
cost."""
