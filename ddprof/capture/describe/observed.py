"""The models, optimizers and loaders that hooks have seen: held by weak references, described while they exist."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from functools import partial
from threading import get_ident
from typing import Any

from ddprof.capture.describe import environment
from ddprof.capture.describe import loader as describe_loader
from ddprof.capture.describe import model as describe_model
from ddprof.capture.describe.stacks import script_line
from ddprof.capture.guard import Guard

_MAX_LOADERS = 16
_MAX_MODELS = 16
_MAX_MADE = 1024  # optimizers may be one for each parameter, where they step inside backward
_MAX_LINES = 64
_MESH_PARALLELISM = ("tp", "cp", "ep")  # mesh dimensions whose usual name says what they are for
_MAX_RATES = 16  # parameter groups


class Observed:
    """Sidecar descriptions of models, optimizers and loaders, refreshed as long as the objects exist."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._roots: list[tuple[str, weakref.ref[Any]]] = []
        self.optimizers: dict[int, weakref.ref[Any]] = {}
        self.step_watchers: list[Callable[[Any], object]] = []  # called with each optimizer that has stepped
        self.pass_watchers: list[Callable[[], object]] = []  # called before each backward pass of the training thread
        self.training_thread: int | None = None  # the thread in which the first optimizer stepped
        # What settings belong to, by id(): its kind, and the line that made it.
        self._made: dict[int, tuple[weakref.ref[Any], str, Any]] = {}
        self._lines: dict[tuple[str, str, int], str] = {}  # (what, file, line) -> function
        self._loaders: dict[int, tuple[weakref.ref[Any], int]] = {}  # by id(), each with its number
        self._loaders_seen = 0
        self._training_loader = "dataloader"
        self.frameworks: list[str] = []
        self._described: dict[str, Any] = {}
        self._surroundings: dict[str, Any] = {}

    def watch_steps(self, watch: Callable[[Any], object], wanted: bool) -> None:
        """Call `watch` at optimizer steps, or no more."""
        self.step_watchers = _with(self.step_watchers, watch, wanted)

    def watch_passes(self, watch: Callable[[], object], wanted: bool) -> None:
        """Call `watch` before backward passes, or no more."""
        self.pass_watchers = _with(self.pass_watchers, watch, wanted)

    def pass_begins(self) -> None:
        """Tell the watchers, in the training thread."""
        if get_ident() == self.training_thread:
            for watch in self.pass_watchers:
                watch()

    def saw_framework(self, name: str) -> None:
        """Note a kind of parallelism or a framework."""
        if name not in self.frameworks:
            self.frameworks.append(name)

    def saw_root(self, kind: str, model: Any) -> None:
        """Note the call of a root module ("ddp", "fsdp1", "fsdp2", "module", ...)."""
        if any(reference() is model for _, reference in self._roots):
            return
        self._roots.append((kind, weakref.ref(model)))
        self._surroundings["precision"] = self._guard.attempt("precision", environment.precision)
        self._surroundings["watchers"] = self._guard.attempt("watchers", environment.watchers) or []
        framework = _framework(kind)
        if framework != "module":
            self.saw_framework(framework)
        for name in self._guard.attempt("mesh", lambda: describe_model.mesh_dimensions(model)) or []:
            if name in _MESH_PARALLELISM:
                self.saw_framework(name)

    def models(self) -> list[tuple[str, Any]]:
        """(kind, model) of the models still alive, in the order of their first call."""
        return [(kind, model) for kind, reference in self._roots if (model := reference()) is not None]

    def living_optimizers(self) -> list[Any]:
        """The optimizers that have stepped and are still alive."""
        return [optimizer for reference in self.optimizers.values() if (optimizer := reference()) is not None]

    def ddp_model(self) -> Any:
        """The DDP model; None where there is none or it was freed."""
        return self._first(("ddp",))

    def saw_pipeline(self, description: dict[str, Any]) -> None:
        """Note that a pipeline schedule ran."""
        self.saw_framework("pp")
        self._described["pipeline"] = description

    def saw_optimizer(self, optimizer: Any, died: Callable[[int], object]) -> None:
        """Note an optimizer's first step, in this thread. `died`: to be told its id when the script lets go of it."""
        if self.training_thread is None:
            self.training_thread = get_ident()
        number = id(optimizer)
        self.optimizers[number] = weakref.ref(optimizer, lambda _: died(number))

    def was_made(self, thing: Any, kind: str) -> None:
        """Note that the running line of the script creates an optimizer, a loader or a wrapper."""
        line = script_line()
        if len(self._made) < _MAX_MADE and hasattr(thing, "__weakref__"):
            self._made[id(thing)] = (weakref.ref(thing), kind, line)
        if line is not None and len(self._lines) < _MAX_LINES:
            self._lines.setdefault((kind, line["file"], line["line"]), line["function"])

    def made_at(self, thing: Any) -> Any:
        """The line of the script that created it; None where that is not known."""
        reference, _, line = self._made.get(id(thing), (None, "", None))
        return line if reference is not None and reference() is thing else None

    def made_of(self, kind: str) -> list[Any]:
        """The living objects of a kind, as `was_made` was told it."""
        return [it for reference, of, _ in self._made.values() if of == kind and (it := reference()) is not None]

    def made_lines(self) -> list[dict[str, Any]]:
        """The lines that created something, each with its kind; `trains` marks the loader that feeds the optimizer."""
        trains = self._described.get(self._training_loader, {}).get("line")
        return [
            {
                "object": kind,
                "file": file,
                "line": line,
                "function": function,
                "trains": bool(trains) and kind == "DataLoader" and (trains["file"], trains["line"]) == (file, line),
            }
            for (kind, file, line), function in self._lines.items()
        ]

    def saw_loader(self, loader: Any) -> int | None:
        """The number of a DataLoader whose iteration begins; None beyond the first `_MAX_LOADERS`."""
        known = self._loaders.get(id(loader))
        if known is not None and known[0]() is loader:  # else the id was that of a loader that is gone
            return known[1]
        number = self._loaders_seen
        if number == _MAX_LOADERS:
            return None
        self._loaders_seen += 1
        self._loaders[id(loader)] = weakref.ref(loader), number
        # Now: of `for batch in DataLoader(..)` only the iterator stays alive.
        self._refresh(
            _loader_key(number),
            loader,
            lambda loader: {**describe_loader.describe(loader), "line": self.made_at(loader)},
        )
        return number

    def trains_with(self, number: int) -> None:
        """The loader that feeds the optimizer; until that is known, the first loader."""
        self._training_loader = _loader_key(number)

    def describe(self) -> dict[str, Any]:
        """The sidecar's keys about the job's objects; a freed object keeps its last description."""
        self._refresh("parameters", self._first((*describe_model.WRAPPERS, "module")), describe_model.parameters)
        for kind, describe in describe_model.WRAPPERS.items():
            self._refresh(_framework(kind), self._first((kind,)), describe)
        for index, (kind, reference) in enumerate(self._roots[:_MAX_MODELS]):
            self._refresh(f"model.{index}", reference(), partial(describe_model.describe, kind))
        optimizers = [reference() for reference in self.optimizers.values()]
        for index, optimizer in enumerate(optimizers):
            key = "optimizer" if index == 0 else f"optimizer.{index}"
            self._refresh(key, optimizer, _described_optimizer)
        described, training = dict(self._described), self._training_loader
        return {
            "parallelism": list(self.frameworks),
            **{key: described.get(key) for key in ("ddp", "fsdp", "deepspeed", "pipeline", "optimizer")},
            "more_optimizers": _numbered(described, "optimizer"),
            "parameters": described.get("parameters"),
            "models": _numbered(described, "model"),
            "made": self.made_lines(),
            "dataloader": described.get(self._training_loader),
            "more_dataloaders": [
                described[key] for key in sorted(described) if key.startswith("dataloader") and key != training
            ],
        }

    def surroundings(self) -> dict[str, Any]:
        """Backend, device, versions, process groups, precision: as last seen, as scripts destroy their groups."""
        readers: dict[str, Callable[[], Any]] = {
            "backend": environment.backend,
            "device": environment.device,
            "versions": environment.versions,
            "process_groups": environment.process_groups,
        }
        if "precision" not in self._surroundings:
            readers["precision"] = environment.precision
        for key, read in readers.items():
            value = self._guard.attempt(key, read)
            if value or key not in self._surroundings:
                self._surroundings[key] = value
        return dict(self._surroundings)

    def _refresh(self, key: str, thing: Any, describe: Callable[[Any], dict[str, Any]]) -> None:
        if thing is None:
            return
        described = self._guard.attempt(f"describing {key}", lambda: describe(thing))
        if described is not None:
            self._described[key] = described

    def _first(self, kinds: tuple[str, ...]) -> Any:
        for kind in kinds:
            for seen, reference in self._roots:
                model = reference()
                if seen == kind and model is not None:
                    return model
        return None


def _with(watchers: list[Any], watch: Any, wanted: bool) -> list[Any]:
    """A new list, as another thread may iterate over the old one."""
    others = [other for other in watchers if other != watch]
    return [*others, watch] if wanted else others


def _framework(kind: str) -> str:
    return "fsdp" if kind.startswith("fsdp") else kind


def _loader_key(number: int) -> str:
    return f"dataloader.{number}" if number else "dataloader"


def _numbered(described: dict[str, Any], prefix: str) -> list[Any]:
    numbered = [(int(key.removeprefix(prefix + ".")), key) for key in described if key.startswith(prefix + ".")]
    return [described[key] for _, key in sorted(numbered)]


def _described_optimizer(optimizer: Any) -> dict[str, Any]:
    """Class, fused / foreach as set by the user (null: torch's default), numbers of parameter groups and parameters,
    and each group's learning rate from the script, before any schedule.
    """
    groups = getattr(optimizer, "param_groups", [])
    first = groups[0] if groups else {}
    return {
        "class": type(optimizer).__name__,
        "fused": first.get("fused"),
        "foreach": first.get("foreach"),
        "capturable": first.get("capturable"),
        "parameter_groups": len(groups),
        "learning_rates": [_rate(group) for group in groups[:_MAX_RATES]],
        "parameter_tensors": sum(len(group.get("params", ())) for group in groups),
    }


def _rate(group: Any) -> float | None:
    """A learning rate; None for a tensor, as reading it could wait for the device."""
    rate = group.get("initial_lr", group.get("lr"))
    return float(rate) if isinstance(rate, (int, float)) else None


def updates(optimizers: Iterable[Any], model: Any) -> bool:
    """True where one of the optimizers holds a parameter of the model."""
    held = {id(parameter) for it in optimizers for group in it.param_groups for parameter in group["params"]}
    return any(id(parameter) in held for parameter in model.parameters())
