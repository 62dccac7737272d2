"""TensorFlow jobs, captured by TensorFlow's own profiler."""
