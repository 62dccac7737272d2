"""Nesting of timers: a timer inside another must not be added to it.

Megatron-LM (training/training.py, core/pipeline_parallel/schedules.py, core/distributed/finalize_model_grads.py):
`forward-backward` holds the passes and the messages between stages, and, since the schedule finishes the gradients
(where `all-grads-sync` exists), their reductions; `forward-compute` holds the batch generator, `optimizer` its own
parts. Until 2021 `forward` held the batch generator, `backward` its `backward-backward` and `backward-allreduce`.
DeepSpeed (runtime/engine.py): `bwd` holds `bwd_inner` and `bwd_allreduce`, `step` the optimizer's. Under
Megatron-DeepSpeed the engine's timers run inside Megatron's.
"""

from __future__ import annotations

import re
from collections.abc import Collection

# Of starts, checkpoints and evaluation: no part of an iteration, whose clock stands still meanwhile.
ONCE = re.compile(r"setup|^model-and-optimizer|checkpoint|^eval|iterators|^interval-time|^train/valid")
MESSAGES = re.compile(r"(?:forward|backward)-(?:send|recv)|pipe_(?:send|recv)")
_PARTS = re.compile(
    r"^(?P<of>bwd|backward)[_-](?:inner|allreduce|backward|master-grad|clip-grad)(?P<micro>_microstep)?$"
)


def parent(name: str, names: Collection[str]) -> str | None:
    """The timer in the log that contains this one."""
    return next((of for of in _holders(name, "all-grads-sync" in names) if of in names and of != name), None)


def depth(name: str, names: Collection[str]) -> int:
    """Number of timers around it."""
    of = parent(name, names)
    return 0 if of is None else 1 + depth(of, names)


def _holders(name: str, schedule_finishes: bool) -> tuple[str, ...]:
    """Timers that contain this one, innermost first."""
    if name == "batch-generator":
        return ("forward-compute", "forward-backward", "forward")
    if name in ("forward-compute", "backward-compute") or MESSAGES.match(name):
        return ("forward-backward",)
    if name == "all-grads-sync" or name.endswith("-grads-all-reduce"):
        return ("forward-backward",) if schedule_finishes else ()
    if name == "params-all-gather":
        return ("optimizer",) if schedule_finishes else ()
    if re.match(r"backward-(?:params|layernorm|embedding)-all-reduce", name):
        return ("backward-reduce-model-grads",)
    if name.startswith("optimizer-"):
        return ("optimizer",)
    part = _PARTS.match(name)
    if part is not None:
        return (f"{part['of']}{part['micro'] or ''}",)
    if name.startswith("optimizer_"):
        return ("step", "step_microstep", "optimizer")
    if re.match(r"(?:fwd|forward|bwd|backward)(?:_microstep)?$", name):
        return ("forward-backward",)
    if name in ("generate_sequences", "reshard") or name.startswith("generation_timing"):
        return ("gen",)  # verl's, of its workers
    if "/" in name:
        return (f"{name.partition('/')[0]}/total",)  # NeMo-RL's
    return ("optimizer",) if name in ("step", "step_microstep") else ()
