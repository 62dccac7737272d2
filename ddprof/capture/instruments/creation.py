"""The script's lines that create the objects of settings: loaders, data-parallel wrappers, optimizers."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from ddprof.capture.describe.model import FSDP2_MODULES
from ddprof.capture.hub import Hub
from ddprof.capture.instruments.base import Instrumentor

# Module and name of what makes them, by which the sidecar calls it. Optimizers are told of by OptimizerSteps.
_MAKERS = (
    ("torch.utils.data.dataloader", "DataLoader"),
    ("torch.nn.parallel.distributed", "DistributedDataParallel"),
    ("torch.distributed.fsdp.fully_sharded_data_parallel", "FullyShardedDataParallel"),
    *((module, "fully_shard") for module in FSDP2_MODULES),
)
_OURS = "_ddprof_notes"


class CreationLines(Instrumentor):
    """Notes the lines that create one kind of object."""

    def __init__(self, hub: Hub, module: str, name: str) -> None:
        super().__init__(hub)
        self.module = module
        self._name = name

    def _install(self, module: ModuleType) -> None:
        maker = getattr(module, self._name)
        owner, name = (maker, "__init__") if isinstance(maker, type) else (module, self._name)
        original: Any = getattr(owner, name)
        if getattr(original, _OURS, False):
            return  # torch has the function in both modules
        made, kind = self.hub.guard.wrap_hook(self.hub.observed.was_made), self._name

        @functools.wraps(original)
        def replacement(*args: Any, **kwargs: Any) -> Any:
            if args:
                made(args[0], kind)
            return original(*args, **kwargs)

        setattr(replacement, _OURS, True)
        self.patches.add(owner, name, replacement)


def creation_lines(hub: Hub) -> list[Instrumentor]:
    """One instrumentor for each kind of object."""
    return [CreationLines(hub, *maker) for maker in _MAKERS]
