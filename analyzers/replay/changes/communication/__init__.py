"""Changes of what is communicated: link speed, merged or earlier collectives, gradient buckets, gathers."""
