"""Some ranks in place of all: which ones are read, what they show of the job, and which one to read next."""
