"""Assumed speed of faster implementations, which no trace shows: one place for rules and planners."""

from __future__ import annotations

HALF_PRECISION_SPEEDUP = 2.5  # of fp32 products: between Daydream's 3 if compute-bound and 2 if memory-bound (ATC'20)
TF32_SPEEDUP = 2.0  # half the peak of 16 bit
FUSED_DEVICE_SHARE = 0.3  # of an optimizer's device time: bytes of one pass over those of about 10 elementwise kernels
FUSED_HOST_SHARE = 0.05  # of its host time
FUSED_CPU_SHARE = 0.25  # of its step on a CPU rank: AdamW of 520 small tensors took 2.8 ms for 13.3 (2026-11-28)
LOOPED_SHARE = 0.15  # of operators called one by one: nn.LSTM left 0.16 of its cell's, a batched loss none (2026-11-28)
