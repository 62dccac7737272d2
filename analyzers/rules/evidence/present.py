"""Practice: what a job already does, from its own recording: advice that contradicts it is no advice."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ddprof.analyzers.job.model import JobFacts
from ddprof.findings import Fix

_COMPILED = re.compile(
    r"^Torch-Compiled Region|CompiledFxGraph|^CompiledFunction|^TorchDynamo"  # host ranges of torch.compile
    r"|^triton_(?:poi|per|red|tem|for)_"  # kernels that Inductor generates
)
_GRAPHS = re.compile(r"^(?:cuda|hip|cu)GraphLaunch")
_PYTORCH = re.compile(r"^aten::|at::native::|^autograd::|^torch|c10d::")
_TRAINS = re.compile(r"backward|bwd|dgrad|wgrad|optimizer", re.IGNORECASE)
_PYTORCH_STEP = re.compile(r"ProfilerStep")
# Formats of other frameworks, whose steps the reader marks as PyTorch's profiler does.
_OTHER_FRAMEWORKS = ("xplane",)


@dataclass(frozen=True)
class Practice:
    """Record of what the recording of a job shows of the program, whatever its settings say.

    `is_pytorch`: False for programs of other languages, which no change of a PyTorch setting can reach.
    `trains`: False where nothing runs backward and no optimizer steps: inference. `has_cuda_graphs`: whether the
    accelerator is one that CUDA graphs exist for.
    """

    is_pytorch: bool
    trains: bool
    is_compiled: bool
    launches_graphs: bool
    has_cuda_graphs: bool


def present_in(job: JobFacts) -> Practice:
    """Practice: what the ranks of a job show: it is compiled, or launches graphs, where any of them does."""
    names = {name for facts in job.ranks for name in facts.strings}
    return Practice(
        is_pytorch=_some(_PYTORCH, names) or (not of_other_framework(job) and _some(_PYTORCH_STEP, names)),
        trains=_some(_TRAINS, names),
        is_compiled=_some(_COMPILED, names),
        launches_graphs=_some(_GRAPHS, names),
        has_cuda_graphs=job.ranks[0].device.kind == "cuda",
    )


def of_other_framework(job: JobFacts) -> bool:
    """True where the recording is of JAX or TensorFlow: no setting of PyTorch can be changed there."""
    is_torch = any(_some(_PYTORCH, facts.strings) for facts in job.ranks)
    return not is_torch and all(facts.format in _OTHER_FRAMEWORKS for facts in job.ranks)


def _some(pattern: re.Pattern[str], names: Iterable[str]) -> bool:
    return any(pattern.search(name) for name in names)


def is_new(fix: Fix) -> bool:
    """True where a fix changes anything: the value that it suggests is not the present one."""
    return fix.current is None or _plain(fix.current) != _plain(fix.suggested)


def _plain(value: str) -> str:
    """A value as settings are compared: 25, 25.0 and "25 " are one."""
    text = value.strip().lower()
    try:
        return f"{float(text):g}"
    except ValueError:
        return text
