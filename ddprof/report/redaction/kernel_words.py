"""Words that names of PyTorch, CUDA, ROCm and their libraries are made of (kernel_words.txt), in lower case.

Operators and autograd nodes: the words of all that torch 2.13 registers. Kernels, runtime calls, template arguments:
those of cuBLAS, cuDNN, CUTLASS, CUB, NCCL, FBGEMM, Triton and at::native, as their public sources spell them.
"""

from __future__ import annotations

from importlib.resources import files

KERNEL_WORDS = frozenset(files("ddprof.report.redaction").joinpath("kernel_words.txt").read_text("utf-8").split())
