"""Kernels and operators by name, module and line: time, share of the step and of the critical path, roofline."""
