"""The process of `ddprof run`, which starts the job, watches it from outside and summarises its files."""
