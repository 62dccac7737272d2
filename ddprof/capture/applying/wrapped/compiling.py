"""A wrapped model that is compiled in place."""

from __future__ import annotations

import sys
from typing import Any

from ddprof.capture.applying.wrapped.model_calls import ChangedCall, ModelCallApplier, Tell, call_of, set_call
from ddprof.settings.catalogue import COMPILE


class CompileApplier(ModelCallApplier):
    """Compiles the innermost wrappers, so that the gathering between units stays outside of the graphs."""

    target = COMPILE
    never = "no graph of the model reached the compiler: it was not called, or torch or the script leaves it no frame"

    def refusal(self, thing: Any) -> str:
        """What the script has compiled, and what torch.compile does not take."""
        if any(_compiled_by_script(module) for module in thing.modules()):
            return "the script compiles it, or a part of it, itself"
        if getattr(thing, "_use_orig_params", True) is False:
            return "torch.compile wants FSDP with use_orig_params=True"
        return ""

    def change(self, thing: Any, tell: Tell) -> None:
        """A wrapper around compiled ones is called as before."""
        if not any(isinstance(call_of(module), CompiledInPlace) for module in thing.modules()):
            set_call(thing, CompiledInPlace(thing, tell))


class CompiledInPlace(ChangedCall):
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
