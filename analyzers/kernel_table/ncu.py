"""The command that profiles one kernel of one step with NVIDIA Nsight Compute.

Options as in the Nsight Compute CLI documentation: of the launches that match the name, `--launch-skip` are passed over
and `--launch-count` profiled, counted for each device (`--filter-mode per-gpu`). A kernel is
run several times over, which one that waits for other ranks cannot: collectives have no command.
"""

from __future__ import annotations

import re
import shlex

_SPECIAL, _ESCAPED = re.compile(r"([.^$*+?()\[\]{}|\\])"), r"\\\1"
WARM_UP_STEPS = 10  # passed over: the first ones choose algorithms and load code


def ncu_command(kernel: str, calls_per_step: float, job: str) -> str:
    """Profile the launches of this kernel in the step after the first WARM_UP_STEPS. `job`: how the job is started."""
    launches = max(1, round(calls_per_step))
    words = [
        "ncu",
        *("--target-processes", "all", "--filter-mode", "per-gpu", "--kernel-name-base", "demangled"),
        *("--kernel-name", f"regex:^{_SPECIAL.sub(_ESCAPED, kernel)}$"),
        *("--launch-skip", str(round(calls_per_step * WARM_UP_STEPS)), "--launch-count", str(launches)),
        *("--set", "full", "-o", "kernel"),
    ]
    return f"{shlex.join(words)} {job}"
