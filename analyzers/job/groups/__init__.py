"""The process groups of a job: one identity for all ranks, and the parallelism that each group serves."""
