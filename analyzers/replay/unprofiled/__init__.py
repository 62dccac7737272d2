"""The recorded run as it would be without the profiler."""
