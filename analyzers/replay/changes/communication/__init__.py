"""Changes of communication: link speed, merged or earlier collectives, gradient buckets, gathers."""
