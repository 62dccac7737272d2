"""A wrapped model that is called under autocast."""

from __future__ import annotations

import sys
from typing import Any

from ddprof.capture.applying.wrapped.model_calls import ChangedCall, ModelCallApplier, Tell, call_of, set_call
from ddprof.settings.catalogue import AUTOCAST

_NARROW = ("torch.bfloat16", "torch.float16")


class AutocastApplier(ModelCallApplier):
    """The outermost wrapper enters autocast."""

    target = AUTOCAST

    def refusal(self, thing: Any) -> str:
        """Another precision of the script's, and devices without bfloat16."""
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
        """Units inside it are called as before."""
        for inner in list(thing.modules())[1:]:
            call = call_of(inner)
            if isinstance(call, UnderAutocast):
                set_call(inner, call.inner)
        set_call(thing, UnderAutocast(thing, tell))


class UnderAutocast(ChangedCall):
    """A call of a module under autocast, its results in float32 again, as Accelerate does it."""

    def __init__(self, module: Any, tell: Tell) -> None:
        self.inner = call_of(module)
        self._call = module._call_impl if self.inner is None else self.inner
        self._tell, self._told = tell, False
        self._torch: Any = sys.modules["torch"]
        self._device = next(iter(module.parameters())).device.type

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        torch = self._torch
        own = torch.is_autocast_enabled(self._device)
        if not self._told and not torch.compiler.is_compiling():
            self._told = True
            self._tell("the script calls the model under autocast itself" if own else "")
        if own:
            return self._call(*args, **kwargs)
        with torch.autocast(self._device, dtype=torch.bfloat16):
            result = self._call(*args, **kwargs)
        return torch.utils._pytree.tree_map_only(torch.Tensor, _wide, result)


def _casts(thing: Any) -> bool:
    """Whether the wrapper casts by itself."""
    policy = getattr(thing, "mixed_precision", None)
    state = getattr(thing, "_get_fsdp_state", None)
    if state is not None:
        policy = getattr(state(), "_mp_policy", None)
    return getattr(policy, "param_dtype", None) is not None


def _wide(value: Any) -> Any:
    return value.float() if str(value.dtype) in _NARROW else value
