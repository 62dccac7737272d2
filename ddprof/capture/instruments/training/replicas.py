"""Checksums of a rank's parameters and buffers after a trace window, for comparing replicas.

Between two steps, after the window's trace has been written, when the profiler has waited for the device anyway. No
collective: the checksums of the ranks are compared by the analysis.

Models in DistributedDataParallel, and parameters that an optimizer updates outside any such model. Sharded parameters
(FSDP, DTensor, ZeRO) differ between ranks by design: they are left out. Beside them, how many layers of batch
normalisation take their statistics from this rank's batch alone.
"""

from __future__ import annotations

import sys
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from ddprof.capture.instruments.base import Instrumentor

_MAX_TENSORS = 1024  # of all models together
_MAX_ELEMENTS = 512  # read of one tensor: its first half of them in a row, the others spread over it
_SHARDED = ("fsdp1", "fsdp2", "deepspeed")
Named = tuple[str, str, Any]  # name, "parameter" or "buffer", tensor
Kept = tuple[Any, Any, int]  # parameter, some of its numbers, how often it had been changed in place


class Replicas(Instrumentor):
    """Keeps the checksums of the last window."""

    def _install(self, module: ModuleType) -> None:
        self._taken: dict[str, Any] | None = None
        self._before: list[Kept] | None = None
        self._updates = 0
        self._norms: list[dict[str, Any]] | None = None

    def _uninstall(self) -> None:
        self.hub.observed.watch_steps(self._stepped, False)

    def window_opened(self, first_step: int, last_step: int) -> None:
        """Keep some numbers of what is trained, on its device, and count updates from now on."""
        models = self.hub.observed.models()
        self._before = self.hub.guard.attempt("parameters", lambda: kept(models))
        self._updates = self.hub.journal.skipped_optimizer_steps
        self.hub.observed.watch_steps(self._stepped, True)

    def _stepped(self, _: Any) -> None:
        self._updates += 1

    def window_closed(self) -> None:
        """Count no more updates."""
        self._uninstall()

    def window_written(self, last_step: int) -> None:
        """Compute the checksums; a model that cannot be read costs only its own, and a note."""
        began_ns = time.perf_counter_ns()
        observed = self.hub.observed
        optimizers = observed.living_optimizers()
        models = [*observed.models(), *self._never_called()]
        things = [*optimizers, *(model for _, model in models)]
        lines = {id(thing): observed.made_at(thing) for thing in things}
        sums = self.hub.guard.attempt("checksums", lambda: checksums(models, optimizers, lines))
        if sums is not None:
            updates = self._updates - self.hub.journal.skipped_optimizer_steps
            unchanged = self.hub.guard.attempt("parameters", lambda: are_unchanged(self._before or []))
            took_ns = time.perf_counter_ns() - began_ns
            of_window = {"step": last_step, "updates": updates, "unchanged": unchanged}
            self._taken = {**of_window, "took_ns": took_ns, "models": sums}
        self._before = None
        self._norms = self.hub.guard.attempt("batch norm", lambda: batch_norms(models))

    def _never_called(self) -> list[tuple[str, Any]]:
        """Wrapped models whose inner module alone is called: their gradients are not averaged."""
        called = {id(model) for _, model in self.hub.observed.models()}
        made = self.hub.observed.made_of("DistributedDataParallel")
        return [("ddp", model) for model in made if id(model) not in called]

    def recorded(self) -> dict[str, Any]:
        """`replicas` and `batch_norms`: null before the first window was written."""
        return {"replicas": getattr(self, "_taken", None), "batch_norms": getattr(self, "_norms", None)}


def checksums(
    models: Sequence[tuple[str, Any]], optimizers: Sequence[Any], lines: Mapping[int, Any]
) -> list[dict[str, Any]]:
    """One entry per model. `models`: (kind, model) as seen; `lines`: creating line by id of a model or optimizer.

    Raises RuntimeError where torch cannot read a tensor.
    """
    wrapped = [model for kind, model in models if kind == "ddp"]
    entries, taken = [], set[int]()
    room = _MAX_TENSORS
    for model in wrapped:
        tensors = list(_of_ddp(model))
        taken.update(id(tensor) for _, _, tensor in tensors)
        entries.append({**_ddp(model), "line": lines.get(id(model)), **_summed(tensors[:room])})
        room -= len(tensors[:room])
    if not any(kind in _SHARDED for kind, _ in models):
        plain = [model for kind, model in models if kind == "module"]
        tensors = list(_unwrapped(plain, optimizers, taken))[:room]
        if tensors:
            name = type(plain[0]).__name__ if plain and not wrapped else None
            line = lines.get(id(optimizers[0])) if len(optimizers) == 1 else None
            entries.append({"class": name, "kind": "module", "line": line, **_summed(tensors)})
    return entries


def kept(models: Sequence[tuple[str, Any]]) -> list[Kept]:
    """Trained parameters, with copies of some numbers on their device: nothing waits for it. Shards are left out."""
    torch = sys.modules["torch"]
    if any(kind in _SHARDED for kind, _ in models):
        return []
    trained = {id(p): p for _, model in models for p in model.parameters() if p.requires_grad}
    readable = [p for p in trained.values() if _is_readable(torch, p)][:_MAX_TENSORS]
    with torch.no_grad():
        return [(p, _sample(p.detach()).clone(), p._version) for p in readable]


def are_unchanged(before: Sequence[Kept]) -> bool | None:
    """True where no parameter changed: by all of its numbers, or by some and nothing wrote to it. None without any."""
    torch = sys.modules["torch"]
    with torch.no_grad():
        now = _fetched(torch, [_sample(parameter.detach()) for parameter, _, _ in before])
        then = _fetched(torch, [numbers for _, numbers, _ in before])
    untouched = (p.numel() <= _MAX_ELEMENTS or p._version == version for p, _, version in before)
    return all(torch.equal(a, b) for a, b in zip(now, then, strict=True)) and all(untouched) if before else None


def _ddp(model: Any) -> dict[str, Any]:
    distributed = sys.modules["torch.distributed"]
    return {
        "class": type(model.module).__name__,
        "kind": "ddp",
        "ranks": list(distributed.get_process_group_ranks(model.process_group)),
        "broadcast_buffers": bool(getattr(model, "broadcast_buffers", True)),
    }


def _of_ddp(model: Any) -> Iterator[Named]:
    ignored = set(getattr(model, "parameters_to_ignore", ()) or ())
    for kind, tensors in (("parameter", model.module.named_parameters()), ("buffer", model.module.named_buffers())):
        yield from ((name, kind, tensor) for name, tensor in tensors if name not in ignored)


def _unwrapped(models: Sequence[Any], optimizers: Iterable[Any], taken: set[int]) -> Iterator[Named]:
    """Tensors that optimizers update outside any wrapper, and the buffers of their models."""
    names = {id(p): name for model in reversed(models) for name, p in model.named_parameters()}
    seen = set(taken)
    for optimizer in optimizers:
        for number, parameter in enumerate(p for group in optimizer.param_groups for p in group["params"]):
            if id(parameter) not in seen:
                seen.add(id(parameter))
                if parameter.requires_grad:
                    shape = "x".join(map(str, parameter.shape))
                    unnamed = f"{type(optimizer).__name__}[{number}] ({shape})"
                    yield names.get(id(parameter), unnamed), "parameter", parameter
    for model in models:
        ids = [id(p) for p in model.parameters()]
        if any(i in seen and i not in taken for i in ids) and not taken.intersection(ids):
            yield from ((name, "buffer", buffer) for name, buffer in model.named_buffers())


def _summed(tensors: Sequence[Named]) -> dict[str, Any]:
    """Columns, one entry per readable tensor; `checksums` are eight hexadecimal digits each, concatenated.

    `values`: the first number of each, which separates rounding from another state. All samples leave the device at
    once.
    """
    torch = sys.modules["torch"]
    readable = [(name, kind, tensor.detach()) for name, kind, tensor in tensors if _is_readable(torch, tensor)]
    with torch.no_grad():
        samples = [_sample(tensor) for _, _, tensor in readable]
        contents = _fetched(torch, samples)
    return {
        "names": [name for name, _, _ in readable],
        "buffers": [at for at, (_, kind, _) in enumerate(readable) if kind == "buffer"],
        "sizes_bytes": [tensor.numel() * tensor.element_size() for _, _, tensor in readable],
        "checksums": "".join(f"{zlib.crc32(content.numpy()):08x}" for content in contents),
        "values": [_first(content, sample) for content, sample in zip(contents, samples, strict=True)],
    }


def _is_readable(torch: Any, tensor: Any) -> bool:
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided
    return bool(plain and tensor.device.type != "meta" and tensor.numel() and not tensor.is_quantized)


def _sample(tensor: Any) -> Any:
    """At most `_MAX_ELEMENTS` numbers of a tensor, always the same ones, in one dimension."""
    flat = _flat(tensor)
    half = _MAX_ELEMENTS // 2
    if flat.numel() <= _MAX_ELEMENTS:
        return flat
    rest = flat[half:]
    return sys.modules["torch"].cat([flat[:half], rest[:: -(-rest.numel() // half)]])


def _flat(tensor: Any) -> Any:
    """All numbers, without a copy where the memory is dense in some order (channels last, transposed)."""
    order = sorted(range(tensor.dim()), key=lambda dim: (-tensor.stride(dim), dim))
    laid = tensor.permute(order)
    if laid.is_contiguous():
        return laid.view(-1)
    while tensor.dim() > 1 and tensor.numel() > _MAX_ELEMENTS:
        tensor = tensor[0]
    return tensor.reshape(-1)[:_MAX_ELEMENTS].contiguous()


def _fetched(torch: Any, samples: Sequence[Any]) -> list[Any]:
    """The bytes of each sample in host memory: one copy for each device."""
    contents: dict[int, Any] = {}
    by_device: dict[Any, list[int]] = {}
    for at, sample in enumerate(samples):
        by_device.setdefault(sample.device, []).append(at)
    for device, places in by_device.items():
        raw = [samples[at].contiguous().view(torch.uint8) for at in places]
        if device.type != "cpu":
            raw = torch.cat(raw).cpu().split([piece.numel() for piece in raw])
        contents.update(zip(places, raw, strict=True))
    return [contents[at] for at in range(len(samples))]


def _first(content: Any, sample: Any) -> float | None:
    """The first number of a sample; None where it is complex or not finite."""
    if not sample.is_floating_point():
        return None
    value = float(content[: sample.element_size()].clone().view(sample.dtype)[0])
    return value if abs(value) < 1e300 else None


def batch_norms(models: Sequence[tuple[str, Any]]) -> list[dict[str, Any]]:
    """One entry per model, (kind, model) as seen, with such layers in training mode; frozen layers do not count."""
    base = sys.modules["torch"].nn.modules.batchnorm._BatchNorm
    seen: set[int] = set()
    entries = []
    for kind, model in models:
        inner = getattr(model, "module", model)
        layers = [(name, layer) for name, layer in inner.named_modules() if isinstance(layer, base) and layer.training]
        names = [name for name, layer in layers if id(layer) not in seen and not _is_synchronised(layer)]
        seen.update(id(layer) for _, layer in layers)
        if names:
            entries.append({"class": type(inner).__name__, "kind": kind, "layers": len(names), "first": names[0]})
    return entries


def _is_synchronised(layer: Any) -> bool:
    """True for SyncBatchNorm, torch's own or another library's (apex, inplace_abn)."""
    return any("sync" in cls.__name__.lower() for cls in type(layer).__mro__)
