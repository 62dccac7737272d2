"""Kinds of traffic: that of gradients, and what could go, with its calls and the host time of these."""

from __future__ import annotations

from dataclasses import dataclass

from ddprof.intervals import Intervals
from ddprof.tables import Array

# Groups of unknown role are taken to be data parallel: most are, and DDP's own group has no telling name.
GRADIENT_ROLES = ("dp", "replicate", "world", "")
DEFAULT_BUCKET_MIB = 25.0  # bucket_cap_mb of torch.nn.parallel.DistributedDataParallel
DEFAULT_FIRST_BUCKET_MIB = 1.0  # its first bucket, where the cap is left at its default

ACCUMULATION = "accumulation"  # gradients reduced after micro-batches that no optimizer step follows
BUFFERS = "buffers"  # buffers of the model sent from rank 0 before each forward pass
UNUSED = "unused"  # the search for unused parameters where there are none
METRICS = "metrics"  # values gathered or reduced by the script after the optimizer's step, which no pass needs
PARAMETERS = "parameters"  # sent or averaged by the script after the step, of a model whose gradients were reduced
OF_LOSS = "of_loss"  # values gathered or reduced by the script before the backward pass, which a loss alone may need
NORMS = "norms"  # small values reduced one by one between backward pass and optimizer


@dataclass(frozen=True)
class Needless:
    """Communication of one kind, rank by rank in the order of JobFacts.ranks.

    `kind`: a constant of this module. `comms`: bool per row of the rank's comms. `host`: when the host does nothing but
    call it, ns on the rank's own clock. `number`: of passes per optimizer step (ACCUMULATION), of parameters (UNUSED);
    else 0. `is_proven`: the recording shows that the training is the same without it.
    """

    kind: str
    comms: tuple[Array, ...]
    host: tuple[Intervals, ...]
    number: int = 0
    is_proven: bool = False
