"""The root module's forward, and backward passes.

Wrappers (DDP, FSDP, compiled modules) are timed by a `__call__` on their class. Instance hooks would do too, but they
travel with the module: `torch.save(model)` and `copy.deepcopy` would meet our functions in the user's pickles. Where no
wrapper is met, the first module called from outside any other is learnt as the root during the first step, and its
class is timed from then on. Once an optimizer has stepped, a call with gradients disabled is no forward pass of the
training (scoring, a teacher, a rollout), nor is one of a module beside a data-parallel model that no optimizer updates,
from inputs that need no gradients (a teacher without `no_grad`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

from ddprof.capture.describe.loader import described
from ddprof.capture.describe.observed import updates
from ddprof.capture.files.step import BACKWARD, FORWARD
from ddprof.capture.instruments.base import Instrumentor

# These are the roots also where another module calls them (Fabric, a LightningModule, a wrapper of the user's). Every
# unit of FSDP inside its root is an instance of the same class, so only the first one met is; no DDP is inside a DDP.
_DATA_PARALLEL = ("ddp", "dp", "fsdp1", "fsdp2", "deepspeed")
_TORCHS = ("ddp", "fsdp1", "fsdp2")  # whose optimizers hold the parameters of their modules, not copies of them
_SETTLED = 2  # steps: by then each optimizer of a step has stepped


class ForwardPasses(Instrumentor):
    """Times root forwards; `watch_class` adds wrappers of frameworks once they are imported."""

    def _install(self, module: ModuleType) -> None:
        self._torch: Any = module
        self._watched: dict[Any, str] = {}
        self._learner: Any = None
        self._trains = False  # an optimizer has stepped
        self._aside: list[Any] = []  # the module whose call is under way that is no forward pass
        self._trained = weakref.WeakKeyDictionary[Any, tuple[int, bool]]()  # asked with so many optimizers
        self.watch_class(self._torch.nn.parallel.DistributedDataParallel, "ddp")
        self.watch_class(self._torch.nn.DataParallel, "dp")
        self._learn_root()
        self.hub.watch_root = self._watch_root
        window_ends = self.hub.user_profiler_starts

        def user_profiler_starts() -> Any:
            self._stop_learning()  # a profiler knows calls of modules by the code of nn.Module.__call__
            return window_ends()

        self.hub.user_profiler_starts = user_profiler_starts

    def _uninstall(self) -> None:
        self._stop_learning()
        self._watched.clear()

    def watch_class(self, cls: Any, kind: str) -> None:
        """Time outermost calls of instances of `cls`; `kind` names it in the sidecar."""
        if cls in self._watched:
            return
        self._watched[cls] = kind
        hub = self.hub
        is_compiling = self._torch.compiler.is_compiling
        own_call = vars(cls).get("__call__")
        begin, end, unmarked, learns = hub.begin, hub.end, hub.unmarked, self._torch.is_grad_enabled
        saw, is_aside = hub.guard.wrap(self._saw), hub.guard.wrap(self._is_aside)
        seen: Callable[[], Any] = _nothing  # the root met last: usually the only one
        searching = kind in _DATA_PARALLEL
        aside = self._aside

        def __call__(module: Any, *args: Any, **kwargs: Any) -> Any:
            # Looked up at call time, not kept: torch.fx and others swap nn.Module.__call__ while they trace.
            parent: Any = super(cls, module)
            inherited = own_call.__get__(module) if own_call is not None else parent.__call__
            if is_compiling():
                return inherited(*args, **kwargs)  # dynamo sees through us: no graph break
            nonlocal seen, searching
            if unmarked:
                unmarked[0].forward_begins(module)
            if aside or (self._trains and not learns()):
                return inherited(*args, **kwargs)
            if self._trains and kind == "module" and is_aside(module, (*args, *kwargs.values())):
                aside.append(module)  # modules of the same class inside it are called with what needs gradients
                try:
                    return inherited(*args, **kwargs)
                finally:
                    aside.clear()
            token = begin(FORWARD)
            if seen() is not module and (token or searching):
                saw(kind, module, args)
                seen, searching = weakref.ref(module), kind == "ddp"
            try:
                return inherited(*args, **kwargs)
            finally:
                end(FORWARD, token)

        self.patches.add(cls, "__call__", __call__)

    def optimizer_stepped(self) -> bool:
        """Note that the job trains."""
        self._trains = True
        return False

    def _is_aside(self, module: Any, given: tuple[Any, ...]) -> bool:
        """True for a module without parameters that an optimizer updates, beside a data-parallel model, and without an
        input that needs gradients. Optimizers of the first steps are taken for all of them."""
        if self.hub.tracker.index < _SETTLED:
            return False
        observed = self.hub.observed
        count, trains = self._trained.get(module, (-1, True))
        if count != len(observed.optimizers):
            has_wrapper = any(kind in _TORCHS for kind, _ in observed.models())
            trains = not has_wrapper or updates(observed.living_optimizers(), module)
            self._trained[module] = len(observed.optimizers), trains
        return not trains and not any(getattr(value, "requires_grad", False) for value in given)

    def _saw(self, kind: str, module: Any, given: tuple[Any, ...]) -> None:
        journal = self.hub.journal
        if kind == "ddp" and journal.batch is None and self._torch.is_grad_enabled():
            journal.batch = described(given, self.hub.guard, journal.note)  # the script makes its batches itself
        if kind == "compiled":
            inner = module._orig_mod
            self.hub.observed.saw_framework("compiled")
            kinds = (name for cls, name in self._watched.items() if isinstance(inner, cls))
            kind, module = next(kinds, "module"), inner
        self.hub.observed.saw_root(kind, module)
        self._stop_learning()

    def _learn_root(self) -> None:
        """Watch all module calls until the first optimizer step; the outermost one that trains is the root."""
        base = self._torch.nn.Module
        inherited = base.__call__
        is_compiling = self._torch.compiler.is_compiling
        begin, end, unmarked = self.hub.begin, self.hub.end, self.hub.unmarked
        learn = self.hub.guard.wrap(self._learned)
        inside: list[Any] = []
        watched = self._watched

        # torch's profiler takes what is called "self" in the code of nn.Module.__call__ for the module.
        def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
            if inside or is_compiling():
                return inherited(self, *args, **kwargs)
            inside.append(self)
            if unmarked and not isinstance(self, tuple(watched)):  # or its class has told of the call
                unmarked[0].forward_begins(self)
            started = begin(FORWARD)
            try:
                result = inherited(self, *args, **kwargs)
            finally:
                end(FORWARD, started)
                inside.clear()
            if started and getattr(result, "requires_grad", True):
                learn(self)
            return result

        self._learner = __call__
        self._inherited = inherited
        base.__call__ = __call__

    def _learned(self, module: Any) -> None:
        """Time the first root's class from here on."""
        if self._learner is None or not any(p.requires_grad for p in module.parameters()):
            return
        if isinstance(module, tuple(self._watched)) or type(module).__module__.startswith("torch.nn.modules.loss"):
            return
        self.watch_class(type(module), "module")
        self.hub.observed.saw_root("module", module)

    def _watch_root(self, module: Any) -> None:
        """Time the model of a loop without optimizers, which may not train and which `_learned` skips."""
        self._stop_learning()
        if not isinstance(module, tuple(self._watched)):
            self.watch_class(type(module), "module")
            self.hub.observed.saw_root("module", module)

    def _stop_learning(self) -> None:
        base = self._torch.nn.Module
        if self._learner is not None and vars(base).get("__call__") is self._learner:
            base.__call__ = self._inherited
        self._learner = None

    def step_ended(self, number: int) -> None:
        """Stop looking for roots after the first step."""
        self._stop_learning()


# Wrappers that are imported after torch: the module that has the class, the class, what the sidecar calls it.
# `fully_shard` makes FSDPModule a base of every sharded module's class; a compiled module is timed outside its graph.
_WRAPPERS = (
    ("torch.distributed.fsdp.fully_sharded_data_parallel", "FullyShardedDataParallel", "fsdp1"),
    ("torch.distributed.fsdp._fully_shard._fully_shard", "FSDPModule", "fsdp2"),
    ("torch._dynamo.eval_frame", "OptimizedModule", "compiled"),
    ("deepspeed.runtime.engine", "DeepSpeedEngine", "deepspeed"),
)


class WrapperForward(Instrumentor):
    """Adds one class of `_WRAPPERS` to `ForwardPasses`."""

    def __init__(self, forward: ForwardPasses, module: str, class_name: str, kind: str) -> None:
        super().__init__(forward.hub)
        self.module = module
        self._forward, self._class_name, self._kind = forward, class_name, kind

    def _install(self, module: ModuleType) -> None:
        self._forward.watch_class(getattr(module, self._class_name), self._kind)


def wrapper_forwards(forward: ForwardPasses) -> list[Instrumentor]:
    """One instrumentor for each wrapper outside torch's core."""
    return [WrapperForward(forward, *wrapper) for wrapper in _WRAPPERS]


def _nothing() -> None:
    return None


class Backward(Instrumentor):
    """Times `torch.autograd.backward`, which Tensor.backward, GradScaler, Lightning, DeepSpeed and the Trainer call.

    Only the outermost call counts, as re-entrant checkpointing nests inside it.

    `torch.autograd.grad` is left out on purpose: it computes penalties and Jacobians, not the step's gradients.
    """

    def _install(self, module: ModuleType) -> None:
        torch: Any = module
        begin, end, original = self.hub.begin, self.hub.end, torch.autograd.backward
        is_compiling, unmarked = torch.compiler.is_compiling, self.hub.unmarked
        observed, begins = self.hub.observed, self.hub.guard.wrap(self.hub.observed.pass_begins)

        def backward(*args: Any, **kwargs: Any) -> None:
            """torch.autograd.backward, timed."""
            if is_compiling():
                original(*args, **kwargs)
                return
            if observed.pass_watchers:
                begins()
            token = begin(BACKWARD)
            try:
                original(*args, **kwargs)
            finally:
                end(BACKWARD, token)
                if unmarked and token:
                    unmarked[0].backward_ended()

        backward.__doc__ = original.__doc__
        backward.__wrapped__ = original  # type: ignore[attr-defined]
        self.patches.add(torch.autograd, "backward", backward)
