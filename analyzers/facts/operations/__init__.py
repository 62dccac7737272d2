"""What a rank ran and which of it each busy moment is of: kernels, collectives and copies; on a CPU rank operators."""
