"""The script's lines that create the objects of settings: loaders, data-parallel wrappers, optimizers."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ddprof.capture.instruments.base import Instrumentor

if TYPE_CHECKING:
    from ddprof.capture.hub import Hub

# module that has it, its name there, what the sidecar calls it. Optimizers are told of by OptimizerSteps.
_CLASSES = (
    ("torch.utils.data.dataloader", "DataLoader", "DataLoader"),
    ("torch.nn.parallel.distributed", "DistributedDataParallel", "DistributedDataParallel"),
    ("torch.distributed.fsdp.fully_sharded_data_parallel", "FullyShardedDataParallel", "FullyShardedDataParallel"),
)
# Where `fully_shard` is defined: torch 2.6 and later, torch 2.4 and 2.5.
_FUNCTIONS = (
    ("torch.distributed.fsdp._fully_shard._fully_shard", "fully_shard", "fully_shard"),
    ("torch.distributed._composable.fsdp.fully_shard", "fully_shard", "fully_shard"),
)
_OURS = "_ddprof_notes"


class CreationLines(Instrumentor):
    """Notes the lines that create one kind of object."""

    def __init__(self, hub: Hub, module: str, name: str, kind: str, is_class: bool) -> None:
        super().__init__(hub)
        self.module = module
        self._name, self._kind, self._is_class = name, kind, is_class

    def _install(self, module: ModuleType) -> None:
        owner, name = (getattr(module, self._name), "__init__") if self._is_class else (module, self._name)
        original: Any = getattr(owner, name)
        if getattr(original, _OURS, False):
            return  # torch has the function in both modules
        made, kind = self.hub.guard.wrap_hook(self.hub.observed.was_made), self._kind

        @functools.wraps(original)
        def replacement(*args: Any, **kwargs: Any) -> Any:
            if args:
                made(args[0], kind)
            return original(*args, **kwargs)

        setattr(replacement, _OURS, True)
        self.patches.add(owner, name, replacement)


def creation_lines(hub: Hub) -> list[Instrumentor]:
    """One instrumentor for each kind of object."""
    return [
        *(CreationLines(hub, *place, is_class=True) for place in _CLASSES),
        *(CreationLines(hub, *place, is_class=False) for place in _FUNCTIONS),
    ]
