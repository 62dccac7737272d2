"""Comparison of ranks with their peers: equal kernels and operators, hot shards, stops of the CPU."""
