"""Facts that the launching process reads of its own host: counters, GPUs, how they are connected."""
