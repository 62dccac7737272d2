"""In-place changes of a wrapped model's call: compiled, or under autocast.

`Module.__call__` runs `_compiled_call_impl` where there is one, as `Module.compile` sets it: names of parameters, hooks
and checkpoints of the model stay as they are.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from ddprof.capture.applying.finished import FinishedObjectApplier
from ddprof.capture.applying.outcomes import Outcomes, Place
from ddprof.capture.hub import Hub
from ddprof.settings.catalogue import AUTOCAST, COMPILE
from ddprof.settings.wanted import WantedFix

NEVER_CALLED = "no call of the model was seen"
Tell = Callable[[str], object]  # why a setting is not in force for a model; "" where it is
_NARROW = ("torch.bfloat16", "torch.float16")


class ChangedCall:
    """A changed call of a module. It stays in this process: a pickle or a deep copy of the module has none."""

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()


class ModelCallApplier(FinishedObjectApplier):
    """Changes calls of DDP, FSDP or the units of fully_shard; one instance per changed module."""

    never = NEVER_CALLED

    def __init__(self, hub: Hub, outcomes: Outcomes, module: str, owner: str, name: str) -> None:
        super().__init__(hub, outcomes, module)
        self._owner, self._name = owner, name

    def _install(self, module: ModuleType) -> None:
        self.watch(getattr(module, self._owner) if self._owner else module, self._name)

    def made(self, thing: Any, fixes: Sequence[WantedFix], place: Place) -> None:
        """Handle a new wrapper or unit; the units inside it were made before it."""
        fix = fixes[-1]  # the one for its own line
        why = self.refusal(thing) if hasattr(type(thing), "_compiled_call_impl") else "this torch has no way to do it"
        if why:
            self.outcomes.tell(fix, self.target, place, why)
            return
        self.outcomes.awaited(fix, self.never)
        reported: set[str] = set()

        def tell(why: str) -> None:
            if why not in reported:
                reported.add(why)
                self.outcomes.tell(fix, self.target, place, why)

        self.change(thing, self.outcomes.guard.wrap(tell))

    @abstractmethod
    def refusal(self, thing: Any) -> str:
        """The reason why the call cannot be changed in this way; "" where it can."""

    @abstractmethod
    def change(self, thing: Any, tell: Tell) -> None:
        """Change the call; the model must call `tell` whenever it is called."""


def call_of(module: Any) -> Any:
    """The function that replaces a module's call; None without one."""
    return vars(module).get("_compiled_call_impl")


class AutocastApplier(ModelCallApplier):
    """Makes the outermost wrapper enter autocast."""

    target = AUTOCAST

    def refusal(self, thing: Any) -> str:
        """Refuse another precision of the script's, and devices without bfloat16."""
        parameters = list(thing.parameters())
        if not parameters:
            return "it has no parameters"
        if any(str(parameter.dtype) in _NARROW for parameter in parameters) or _casts(thing):
            return "the script computes in another precision itself"
        torch: Any = sys.modules["torch"]
        device = parameters[0].device.type
        if not torch.amp.is_autocast_available(device):
            return f"there is no autocast for {device}"
        if device == "cuda" and not torch.cuda.is_bf16_supported():
            return "this device does not compute in bfloat16"
        return ""

    def change(self, thing: Any, tell: Tell) -> None:
        """Run the module under autocast; units inside it are called as before."""
        for inner in list(thing.modules())[1:]:
            call = call_of(inner)
            if isinstance(call, _UnderAutocast):
                inner._compiled_call_impl = call.inner
        thing._compiled_call_impl = _UnderAutocast(thing, tell)


class _UnderAutocast(ChangedCall):
    """A call of a module under autocast, its results in float32 again, as Accelerate does it."""

    def __init__(self, module: Any, tell: Tell) -> None:
        self.inner = call_of(module)
        self._call = module._call_impl if self.inner is None else self.inner
        self._tell, self._told = tell, False
        self._torch: Any = sys.modules["torch"]
        self._device = next(iter(module.parameters())).device.type

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        torch = self._torch
        is_autocast = torch.is_autocast_enabled(self._device)
        if not self._told and not torch.compiler.is_compiling():
            self._told = True
            self._tell("the script calls the model under autocast itself" if is_autocast else "")
        if is_autocast:
            return self._call(*args, **kwargs)
        with torch.autocast(self._device, dtype=torch.bfloat16):
            result = self._call(*args, **kwargs)
        return torch.utils._pytree.tree_map_only(torch.Tensor, _wide, result)


def _casts(thing: Any) -> bool:
    """True where the wrapper casts by itself."""
    policy = getattr(thing, "mixed_precision", None)
    state = getattr(thing, "_get_fsdp_state", None)
    if state is not None:
        policy = getattr(state(), "_mp_policy", None)
    return getattr(policy, "param_dtype", None) is not None


def _wide(value: Any) -> Any:
    return value.float() if str(value.dtype) in _NARROW else value


class CompileApplier(ModelCallApplier):
    """Compiles the innermost wrappers, so that gathers between units stay outside the graphs."""

    target = COMPILE
    never = "no graph of the model reached the compiler: it was not called, or torch or the script leaves it no frame"

    def refusal(self, thing: Any) -> str:
        """The reason why the module cannot be compiled: compiled by the script, or unsupported by torch.compile."""
        if any(_compiled_by_script(module) for module in thing.modules()):
            return "the script compiles it, or a part of it, itself"
        if getattr(thing, "_use_orig_params", True) is False:
            return "torch.compile wants FSDP with use_orig_params=True"
        return ""

    def change(self, thing: Any, tell: Tell) -> None:
        """Compile the module; a wrapper around compiled modules is called as before."""
        if not any(isinstance(call_of(module), _CompiledInPlace) for module in thing.modules()):
            thing._compiled_call_impl = _CompiledInPlace(thing, tell)


class _CompiledInPlace(ChangedCall):
    """A call of a module through torch.compile. A graph that the compiler fails on runs as it is."""

    def __init__(self, module: Any, tell: Tell) -> None:
        torch: Any = sys.modules["torch"]
        self._tell = tell
        self._compiled = torch.compile(module._call_impl, backend=self._backend)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._compiled(*args, **kwargs)

    def _backend(self, graph: Any, inputs: Any) -> Any:
        dynamo: Any = sys.modules["torch._dynamo"]
        try:
            made = dynamo.lookup_backend("inductor")(graph, inputs)
        except Exception as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            self._tell(f"a graph of the model runs as it is: {type(error).__name__}: {reason[:160]}")
            return graph.forward
        self._tell("")
        return made


def _compiled_by_script(module: Any) -> bool:
    call = call_of(module)
    return type(module).__name__ == "OptimizedModule" or (call is not None and not isinstance(call, ChangedCall))
