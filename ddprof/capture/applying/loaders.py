"""DataLoader: workers, prefetching, pinned memory. Workers that are not forked import the script anew and receive the
data set, which not every script allows.
"""

from __future__ import annotations

import ast
import builtins
import multiprocessing
import pickle
import resource
import sys
from collections.abc import Iterable
from multiprocessing import forkserver
from pathlib import Path
from types import FrameType, FunctionType, ModuleType
from typing import Any

from ddprof.capture.applying.applier import Applier, ConstructorCall, Refusal, Values, lacking
from ddprof.capture.describe.stacks import is_library
from ddprof.capture.files.storage import free_bytes
from ddprof.settings.catalogue import LOADER

_NEED_WORKERS = ("prefetch_factor", "persistent_workers", "multiprocessing_context")
_MAX_SOURCE_BYTES = 4 << 20
# pickle finds classes by the import of whoever calls it. Capture's import knows ddprof by a private name, under which
# it finds no class of the script's `ddprof`.
_dump = FunctionType((lambda sent, value: sent.dump(value)).__code__, {"__builtins__": builtins})


class LoaderSettingsApplier(Applier):
    """Changes `DataLoader.__init__`, which also makes subclasses and the loaders of frameworks."""

    target = LOADER

    def _install(self, module: ModuleType) -> None:
        source: Any = sys.modules["torch.utils.data.dataloader"]
        self._iterable: Any = source.IterableDataset
        self.watch(source.DataLoader, "__init__")

    def refusal(self, call: ConstructorCall, arguments: Values, wanted: Values) -> Refusal | None:
        """The reason why DataLoader would refuse a setting, or workers would fail or change the samples; else None."""
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
        """Reason to refuse workers for an iterable data set: only its own code can share it out among them."""
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
    """Reason to refuse workers for data on a device: a forked worker cannot use its parent's device."""
    if not wanted.get("num_workers"):
        return None
    tensor, dataset = sys.modules["torch"].Tensor, after.get("dataset")
    for value in [dataset, *vars(dataset).values()] if hasattr(dataset, "__dict__") else ():
        items = value if isinstance(value, (list, tuple)) else (value,)
        if any(isinstance(item, tensor) and item.device.type != "cpu" for item in items[:64]):
            return "num_workers", "the data set holds tensors on a device, which workers cannot read"
    return None


def _cannot_start(after: Values, wanted: Values) -> Refusal | None:
    """Reason why workers cannot start: unless forked they import the script anew and get the data set as a pickle."""
    name = next((n for n in ("multiprocessing_context", "num_workers") if wanted.get(n)), None)
    if name is None or not after["num_workers"]:
        return None
    context = after.get("multiprocessing_context") or multiprocessing.get_start_method()
    context = getattr(context, "_name", context)
    if context == "fork":
        return None
    unguarded = _unguarded_script()
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


def _unguarded_script() -> str | None:
    """The script's file where the calling line would run again in each new process; None where it is under `if __name__
    == "__main__":`, or where no script is known.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if (
            code.co_name == "<module>"
            and frame.f_globals.get("__name__") == "__main__"
            and not is_library(code.co_filename)
        ):
            return None if _is_guarded(Path(code.co_filename), frame.f_lineno) else code.co_filename
        frame = frame.f_back
    return None


def _is_guarded(path: Path, line: int) -> bool:
    try:
        if path.stat().st_size > _MAX_SOURCE_BYTES:
            return False
        tree = ast.parse(path.read_bytes())
    except (OSError, ValueError, SyntaxError):
        return False
    return any(
        isinstance(node, ast.If)
        and any(isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(node.test))
        and node.lineno <= line <= (node.end_lineno or node.lineno)
        for node in tree.body
    )


def unsendable(parts: Iterable[tuple[str, Any]], context: str) -> str:
    """The reason why these objects cannot be sent to workers of a multiprocessing context; "" where they can."""
    sent = _Sent()
    for name, value in parts:
        try:
            _dump(sent, value)
        except (pickle.PicklingError, TypeError, AttributeError, ValueError, RuntimeError, RecursionError) as error:
            reason = " ".join(str(error).split())[:120] or type(error).__name__
            return f"{name} cannot be sent to workers that are not forked: {reason}"
    # Each storage is sent as a file descriptor of shared memory.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
    if context == "forkserver":
        most = min(most, getattr(forkserver, "MAXFDS_TO_SEND", 256) // 2)
    if len(sent.storages) > most:
        return f"the data set holds {len(sent.storages)} tensors of their own: each takes a file descriptor"
    wanted, free = sum(sent.storages.values()), free_bytes(Path("/dev/shm"))
    if free is not None and wanted > free:
        return f"the data set's tensors ({wanted >> 20} MiB) go to shared memory, of which {free >> 20} MiB are free"
    return ""


class _Nowhere:
    """A file that discards everything."""

    def write(self, data: bytes) -> int:
        return len(data)


class _Sent(pickle.Pickler):
    """A pickler that walks through the objects to send without copying their arrays and tensors."""

    def __init__(self) -> None:
        super().__init__(_Nowhere(), protocol=5, buffer_callback=lambda _: False)
        self.storages: dict[int, int] = {}  # address -> bytes
        self._tensor: Any = sys.modules["torch"].Tensor

    def persistent_id(self, obj: Any) -> Any:
        """Leave out tensors, which are sent differently."""
        if not isinstance(obj, self._tensor) or not hasattr(obj, "untyped_storage"):
            return None
        storage = obj.untyped_storage()
        self.storages[storage.data_ptr()] = storage.nbytes()
        return "tensor"
