"""Ranks held against their peers: the same kernels, operators, hot shards and stops of the CPU."""
