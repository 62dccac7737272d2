"""A sample of the ranks: the ranks to read, what they show of the job, and the rank to read next."""
