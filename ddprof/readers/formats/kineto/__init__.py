"""PyTorch profiler (Kineto) JSON."""
