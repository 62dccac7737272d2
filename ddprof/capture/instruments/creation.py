"""The script's lines that create the objects of settings: loaders, data-parallel wrappers, optimizers."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from ddprof.capture.describe.model import FSDP2_MODULES
from ddprof.capture.hub import Hub
from ddprof.capture.instruments.base import Instrumentor

# Module and name of what makes them, by which the sidecar calls it. Optimizers are told of by OptimizerSteps.
MAKERS = (
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
        if hasattr(getattr(owner, name), _OURS):
            return  # torch has the function in both modules
        setattr(self.patches.before(owner, name, self.hub.guard.wrap(self._made)), _OURS, True)

    def _made(self, *args: Any, **_: Any) -> None:
        if args:
            self.hub.observed.was_made(args[0], self._name)
