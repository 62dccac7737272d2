"""Optimizers: fused and foreach kernels, gradients set to None."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from ddprof.capture.applying.applier import Applier, ConstructorCall, Refusal, Values, lacking
from ddprof.settings.catalogue import OPTIMIZER, ZERO_GRAD

_IMPLEMENTATIONS = ("fused", "foreach")


class OptimizerSettingsApplier(Applier):
    """Changes the `__init__` of torch's optimizers that offer a choice of kernels."""

    target = OPTIMIZER

    def _install(self, module: ModuleType) -> None:
        for cls in {value for value in vars(module.optim).values() if isinstance(value, type)}:
            init = vars(cls).get("__init__")
            if init is not None and set(_IMPLEMENTATIONS) & set(inspect.signature(init).parameters):
                self.watch(cls, "__init__")

    def refusal(self, call: ConstructorCall, arguments: Values, wanted: Values) -> Refusal | None:
        """The reason why the first step would refuse a setting, as torch checks some of them only there."""
        after = {**arguments, **wanted}
        for name in wanted:
            if wanted[name] and after.get("fused") and after.get("foreach"):
                other = next(choice for choice in _IMPLEMENTATIONS if choice != name)
                return name, f"the script sets {other}=True, which excludes it"
            if wanted[name] and arguments.get("differentiable"):
                return name, "the script sets differentiable=True, which excludes it"
        return lacking(call, wanted) or (_unfusable(arguments) if wanted.get("fused") else None)

    def preserved(self, call: ConstructorCall) -> tuple[ConstructorCall, Callable[[], object]]:
        """Keep the arguments reusable: parameters may be an iterator, and torch adds defaults to groups."""
        arguments = call.arguments()
        if arguments is None or not isinstance(arguments.get("params"), (list, tuple, Iterator)):
            return call, lambda: None
        params = list(arguments["params"])
        groups = [group for group in params if isinstance(group, dict)]
        for group in groups:
            if isinstance(group.get("params"), Iterator):
                group["params"] = list(group["params"])
        kept = [dict(group) for group in groups]

        def restore() -> None:
            for group, before in zip(groups, kept, strict=True):
                group.clear()
                group.update(before)

        return call.with_values({"params": params}), restore


def _unfusable(arguments: Values) -> Refusal | None:
    """Reason to refuse fused kernels, which take floats on some devices; torch itself checks only at the first step."""
    source: Any = sys.modules["torch.optim.optimizer"]
    check = getattr(source, "_device_dtype_check_for_fused", None)
    supported = getattr(source, "_get_fused_kernels_supported_devices", None)
    for parameter in _parameters(arguments.get("params")):
        if check is not None:
            try:
                check(parameter)
            except RuntimeError as error:
                return "fused", " ".join(str(error).split())[:200]
        elif supported is None or parameter.device.type not in supported() or not parameter.is_floating_point():
            return "fused", f"this torch has no fused kernel for {parameter.dtype} on {parameter.device.type}"
    return None


def _parameters(params: Any) -> Iterator[Any]:
    for entry in params or ():
        inner = entry["params"] if isinstance(entry, dict) else [entry]
        for item in inner if isinstance(inner, (list, tuple)) else [inner]:
            yield item[1] if isinstance(item, tuple) else item  # a tuple: named parameters


class ZeroGradApplier(Applier):
    """Changes calls of `Optimizer.zero_grad`."""

    target = ZERO_GRAD

    def _install(self, module: ModuleType) -> None:
        self.watch(module.optim.Optimizer, "zero_grad")
