"""Traffic of gradients: the roles of their groups, and DDP's bucket sizes."""

from __future__ import annotations

# Groups of unknown role are taken to be data parallel: most are, and DDP's own group has no telling name.
GRADIENT_ROLES = ("dp", "replicate", "world", "")
DEFAULT_BUCKET_MIB = 25.0  # bucket_cap_mb of torch.nn.parallel.DistributedDataParallel
DEFAULT_FIRST_BUCKET_MIB = 1.0  # its first bucket, where the cap is left at its default
