"""What is known of a job that hangs or has failed, rank by rank, and the verdict on it: the data, no more."""
