"""The process of `ddprof run`: it starts the job, watches it from outside and sums up what it left."""
