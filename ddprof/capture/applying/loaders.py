"""DataLoader: workers, prefetching, pinned memory."""

from __future__ import annotations

import multiprocessing
import sys
from types import ModuleType
from typing import Any

from ddprof.capture.applying.applier import Applier, Refusal, Values, lacking
from ddprof.capture.applying.construction import ConstructorCall
from ddprof.capture.applying.respawn import unguarded_script, unsendable
from ddprof.settings.catalogue import LOADER

_NEED_WORKERS = ("prefetch_factor", "persistent_workers", "multiprocessing_context")


class LoaderSettingsApplier(Applier):
    """Changes `DataLoader.__init__`, by which subclasses and the loaders of frameworks are made too."""

    target = LOADER

    def _install(self, module: ModuleType) -> None:
        source: Any = sys.modules["torch.utils.data.dataloader"]
        self._iterable: Any = source.IterableDataset
        self.watch(source.DataLoader, "__init__")

    def refusal(self, call: ConstructorCall, arguments: Values, wanted: Values) -> Refusal | None:
        """What DataLoader would refuse, and what would only fail, or change the samples, once workers run."""
        after = {**arguments, **wanted}
        return (
            lacking(call, wanted)
            or _without_workers(arguments, wanted, after)
            or self._read_twice(arguments, wanted)
            or _on_device(after, wanted)
            or _cannot_start(after, wanted)
            or _unpinnable(wanted)
        )

    def _read_twice(self, arguments: Values, wanted: Values) -> Refusal | None:
        """An iterable data set is shared out among workers by its own code: known to, only where it has several."""
        count = wanted.get("num_workers")
        if not isinstance(arguments.get("dataset"), self._iterable) or count in (None, arguments["num_workers"]):
            return None
        if count > 1 and arguments["num_workers"] < 2:
            return "num_workers", "each worker may read all of an iterable data set: only its code can share it out"
        return None


def _without_workers(arguments: Values, wanted: Values, after: Values) -> Refusal | None:
    if after["num_workers"] != 0:
        return None
    for name in _NEED_WORKERS:
        if after.get(name):
            if "num_workers" in wanted and name not in wanted:
                return "num_workers", f"the script sets {name}, which needs workers"
            if wanted.get(name):
                return name, "needs num_workers above 0"
    if "num_workers" in wanted and arguments.get("timeout"):
        return "num_workers", "the script sets timeout, which needs workers"
    return None


def _on_device(after: Values, wanted: Values) -> Refusal | None:
    """A forked worker cannot use the device that its parent uses."""
    if not wanted.get("num_workers"):
        return None
    tensor = sys.modules["torch"].Tensor
    held = (
        [after.get("dataset"), *vars(after.get("dataset")).values()]
        if hasattr(after.get("dataset"), "__dict__")
        else []
    )
    for value in held:
        items = value if isinstance(value, (list, tuple)) else (value,)
        if any(isinstance(item, tensor) and item.device.type != "cpu" for item in items[:64]):
            return "num_workers", "the data set holds tensors on a device, which workers cannot read"
    return None


def _cannot_start(after: Values, wanted: Values) -> Refusal | None:
    """Workers that are not forked import the script anew and get the data set as a pickle."""
    name = next((n for n in ("multiprocessing_context", "num_workers") if wanted.get(n)), None)
    if name is None or not after["num_workers"]:
        return None
    context = after.get("multiprocessing_context") or multiprocessing.get_start_method()
    context = getattr(context, "_name", context)
    if context == "fork":
        return None
    unguarded = unguarded_script()
    if unguarded is not None:
        return name, f'workers would run {unguarded} again: it has no `if __name__ == "__main__":`'
    why = unsendable([(part, after.get(part)) for part in ("dataset", "collate_fn", "worker_init_fn")], str(context))
    return (name, why) if why else None


def _unpinnable(wanted: Values) -> Refusal | None:
    torch = sys.modules["torch"]
    if not wanted.get("pin_memory"):
        return None
    accelerator = getattr(torch, "accelerator", torch.cuda)
    return None if accelerator.is_available() else ("pin_memory", "there is no accelerator to copy to")
