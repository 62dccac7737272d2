"""What a faster implementation is assumed to take, where the trace cannot say: one place for rules and planners."""

from __future__ import annotations

# Kernels of fp32 products in 16 bit: between Daydream's (ATC'20) factors, 3 if compute-bound, 2 if memory-bound.
HALF_PRECISION_SPEEDUP = 2.5
TF32_SPEEDUP = 2.0  # half the peak of 16 bit
# A fused optimizer: of the device time (bytes of one pass over those of ~10 elementwise kernels), and of the host time.
FUSED_DEVICE_SHARE, FUSED_HOST_SHARE = 0.3, 0.05
