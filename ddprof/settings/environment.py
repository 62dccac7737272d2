"""Settings that are environment variables: `ddprof run` sets them before the command starts, the ranks read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ddprof.settings.catalogue import NCCL_PREFIX, Value
from ddprof.settings.wanted import WantedFix, shown

_ALLOCATOR = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")  # the first where both are read: torch 2.9 and later


def variables(fixes: Iterable[WantedFix], base: Mapping[str, str]) -> dict[str, str]:
    """Environment variables that the fixes add to, or change in, `base`."""
    changed: dict[str, str] = {}
    for fix in fixes:
        for name, value in fix.values.items():
            if name == "omp_num_threads":
                changed["OMP_NUM_THREADS"] = str(value)
            elif name == "expandable_segments":
                changed |= _allocator(bool(value), base)
            elif name.startswith(NCCL_PREFIX):
                changed[name] = str(value)
    return changed


def differs(name: str, value: Value, environment: Mapping[str, str]) -> str | None:
    """The reason why a setting differs from a process's environment; "" where it does not, None for other settings."""
    wanted = variables([WantedFix({name: value})], environment)
    if not wanted:
        return None
    for variable, text in wanted.items():
        there = environment.get(variable)
        if there != text:
            is_ = "not set" if there is None else there[:60]
            return f"{variable} is {is_} in this process: the launcher did not pass it on, or the command sets it"
    return ""


def _allocator(wanted: bool, base: Mapping[str, str]) -> dict[str, str]:
    variable = next((name for name in _ALLOCATOR if base.get(name)), _ALLOCATOR[1])
    option = f"expandable_segments:{shown(wanted).capitalize()}"
    others = [part for part in base.get(variable, "").split(",") if part.strip()]
    kept = [part for part in others if not part.strip().startswith("expandable_segments:")]
    return {variable: ",".join([*kept, option])}
