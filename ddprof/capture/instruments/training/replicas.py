"""Checksums of a rank's parameters and buffers after a trace window and later in the run, for comparing replicas.

Before the first backward pass of a step: what is trained is in place then, as it is not where an evaluation has put
other weights there for a while. Of the step after a window, and of each whose number is twice that of the last one. No
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
_MAX_RATES = 64  # parameter groups
_SHARDED = ("fsdp1", "fsdp2", "deepspeed")
Named = tuple[str, str, Any]  # name, "parameter" or "buffer", tensor
Kept = tuple[Any, Any, int]  # parameter, some of its numbers, how often it had been changed in place


class Replicas(Instrumentor):
    """Keeps the checksums of the last window, and the latest after it."""

    def _install(self, module: ModuleType) -> None:
        self._taken: dict[str, Any] | None = None
        self._later: dict[str, Any] | None = None
        self._before: list[Kept] | None = None
        self._updates = 0
        self._norms: list[dict[str, Any]] | None = None
        self._passed = False  # a backward pass was seen in the window
        self._next_step: int | None = None  # in which the next checksums are taken

    def _uninstall(self) -> None:
        self.hub.observed.watch_steps(self._stepped, False)
        self.hub.observed.watch_passes(self._pass_begins, False)

    def window_opened(self, first_step: int, last_step: int) -> None:
        """Keep some numbers of what is trained, on its device, and count updates from now on."""
        models = self.hub.observed.models()
        self._before = self.hub.guard.attempt("parameters", lambda: kept(models))
        self._updates = self.hub.journal.skipped_optimizer_steps
        self._passed, self._next_step = False, None
        self.hub.observed.watch_steps(self._stepped, True)
        self.hub.observed.watch_passes(self._pass_begins, True)

    def _stepped(self, _: Any) -> None:
        self._updates += 1

    def window_closed(self) -> None:
        """Count no more updates."""
        self._updates -= self.hub.journal.skipped_optimizer_steps
        self.hub.observed.watch_steps(self._stepped, False)

    def window_written(self, last_step: int) -> None:
        """Take the checksums at the next backward pass; now where the script makes none that is seen."""
        self._taken = self._later = None
        if self._passed:
            self._next_step = last_step + 1
        else:
            self._taken = self._of_window(last_step)

    def _pass_begins(self) -> None:
        self._passed = True
        step = self.hub.tracker.index
        if self._next_step is None or step < self._next_step or is_graph_captured():
            return
        self._next_step = 2 * step
        if self._taken is None:
            self._taken = self._of_window(step - 1)
        else:
            self._later = self._state(step - 1)

    def _of_window(self, step: int) -> dict[str, Any]:
        began_ns = time.perf_counter_ns()
        unchanged = self.hub.guard.attempt("parameters", lambda: are_unchanged(self._before or []))
        self._before = None
        self._norms = self.hub.guard.attempt("batch norm", lambda: batch_norms(self._models()))
        state = {"updates": self._updates, "unchanged": unchanged, **self._state(step)}
        return {**state, "took_ns": time.perf_counter_ns() - began_ns}

    def _state(self, step: int) -> dict[str, Any]:
        """Digests after a step; a model that cannot be read costs only its own, and a note."""
        observed, models = self.hub.observed, self._models()
        optimizers = observed.living_optimizers()
        lines = {id(thing): observed.made_at(thing) for thing in [*optimizers, *(model for _, model in models)]}
        sums = self.hub.guard.attempt("checksums", lambda: checksums(models, optimizers, lines))
        return {"step": step, "rates": _rates(optimizers), "models": sums or []}

    def _models(self) -> list[tuple[str, Any]]:
        return [*self.hub.observed.models(), *self._never_called()]

    def _never_called(self) -> list[tuple[str, Any]]:
        """Wrapped models whose inner module alone is called: their gradients are not averaged."""
        called = {id(model) for _, model in self.hub.observed.models()}
        made = self.hub.observed.made_of("DistributedDataParallel")
        return [("ddp", model) for model in made if id(model) not in called]

    def recorded(self) -> dict[str, Any]:
        """`replicas`, of the window and later, and `batch_norms`: null before they were taken."""
        names = {"replicas": "_taken", "later_replicas": "_later", "batch_norms": "_norms"}
        return {key: getattr(self, name, None) for key, name in names.items()}


def is_graph_captured() -> bool:
    """True while a CUDA graph is captured: what waits for the device would spoil it."""
    cuda: Any = sys.modules["torch"].cuda
    return bool(cuda.is_initialized() and cuda.is_current_stream_capturing())


def _rates(optimizers: Iterable[Any]) -> list[float | None]:
    """Learning rates at this moment; None for a tensor, as reading it could wait for the device."""
    rates = [group.get("lr") for optimizer in optimizers for group in optimizer.param_groups]
    return [float(rate) if isinstance(rate, (int, float)) else None for rate in rates[:_MAX_RATES]]


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
    readable = [p for p in trained.values() if is_readable(p)][:_MAX_TENSORS]
    with torch.no_grad():
        return [(p, sample(p.detach()).clone(), p._version) for p in readable]


def are_unchanged(before: Sequence[Kept]) -> bool | None:
    """True where no parameter changed: by all of its numbers, or by some and nothing wrote to it. None without any."""
    torch = sys.modules["torch"]
    with torch.no_grad():
        now = _fetched(torch, [sample(parameter.detach()) for parameter, _, _ in before])
        then = _fetched(torch, [numbers for _, numbers, _ in before])
    untouched = (p.numel() <= _MAX_ELEMENTS or p._version == version for p, _, version in before)
    return all(torch.equal(a, b) for a, b in zip(now, then, strict=True)) and all(untouched) if before else None


def _ddp(model: Any) -> dict[str, Any]:
    """The wrapper's own columns; its kind is another where a hook of torch lets copies part for some steps."""
    distributed = sys.modules["torch.distributed"]
    hook = str(model._get_ddp_logging_data().get("comm_hook"))
    return {
        "class": type(model.module).__name__,
        "kind": "local_sgd" if "localSGD" in hook else "ddp",
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

    `values`: the first number of each, which separates rounding from another state; `nan`: places of those that hold
    NaN. All samples leave the device at once.
    """
    torch = sys.modules["torch"]
    readable = [(name, kind, tensor.detach()) for name, kind, tensor in tensors if is_readable(tensor)]
    with torch.no_grad():
        samples = [sample(tensor) for _, _, tensor in readable]
        contents = _fetched(torch, samples)
    return {
        "names": [name for name, _, _ in readable],
        "buffers": [at for at, (_, kind, _) in enumerate(readable) if kind == "buffer"],
        "sizes_bytes": [tensor.numel() * tensor.element_size() for _, _, tensor in readable],
        "checksums": "".join(f"{zlib.crc32(content.numpy()):08x}" for content in contents),
        "values": [_first(content, sample) for content, sample in zip(contents, samples, strict=True)],
        "nan": [at for at, pair in enumerate(zip(contents, samples, strict=True)) if _has_nan(*pair)],
    }


def is_readable(tensor: Any) -> bool:
    """True for a plain dense tensor with numbers, no shard."""
    torch: Any = sys.modules["torch"]
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided
    return bool(plain and tensor.device.type != "meta" and tensor.numel() and not tensor.is_quantized)


def sample(tensor: Any) -> Any:
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


def _has_nan(content: Any, sample: Any) -> bool:
    is_read = sample.is_floating_point() and sample.element_size() > 1
    return is_read and bool(content.clone().view(sample.dtype).isnan().any())


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
