"""The replayed step as it runs without the profiler."""
