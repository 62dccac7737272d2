"""Features and settings that a job already has, from its recording, so that no fix advises them again."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

from ddprof.analyzers.facts.names import COMPILED
from ddprof.analyzers.job.model import JobFacts
from ddprof.findings import Fix

_OF_INDUCTOR = re.compile(r"^triton_(?:poi|per|red|tem|for)_")  # kernels that it generates
_GRAPHS = re.compile(r"^(?:cuda|hip|cu)GraphLaunch")
_PYTORCH = re.compile(r"^aten::|at::native::|^autograd::|^torch|c10d::")
_TRAINS = re.compile(r"backward|bwd|dgrad|wgrad|optimizer", re.IGNORECASE)
_PYTORCH_STEP = re.compile(r"ProfilerStep")
_INDUCTOR = ("cuda", "rocm", "xpu")  # torch.compile documentation; others bring compilers of their own
# Formats of other frameworks, whose steps the reader marks as PyTorch's profiler does.
_OTHER_FRAMEWORKS = ("xplane",)
OF_ANY_FRAMEWORK = ("launches", "batch size")  # settings of fixes that are said in no framework's words


class Practice(Struct, frozen=True):
    """Features that the recording shows, whatever the settings say.

    `is_pytorch`: False for other programs, which PyTorch settings cannot change; `is_of_xla`: of these, JAX and
    TensorFlow. `trains`: False for inference, without backward passes and optimizer steps. `has_cuda_graphs`: the
    accelerator supports CUDA graphs. `has_inductor`: the compiler that torch.compile uses without further words
    generates code for it.
    """

    is_pytorch: bool
    is_of_xla: bool
    trains: bool
    is_compiled: bool
    launches_graphs: bool
    has_cuda_graphs: bool
    has_inductor: bool

    @property
    def has_batches(self) -> bool:
        """True of what trains or infers, as far as its framework tells: a program without one takes no samples."""
        return self.is_pytorch or self.is_of_xla


def present_in(job: JobFacts) -> Practice:
    """Features used by a job; compiled, or launching graphs, where any rank is."""
    names = {name for facts in job.ranks for name in facts.strings}
    return Practice(
        is_pytorch=_some(_PYTORCH, names) or (not of_other_framework(job) and _some(_PYTORCH_STEP, names)),
        is_of_xla=of_other_framework(job),
        trains=_some(_TRAINS, names),
        is_compiled=_some(COMPILED, names) or _some(_OF_INDUCTOR, names),
        launches_graphs=_some(_GRAPHS, names),
        has_cuda_graphs=job.ranks[0].device.kind == "cuda",
        has_inductor=job.ranks[0].device.kind in _INDUCTOR,
    )


def of_other_framework(job: JobFacts) -> bool:
    """True where the recording is of JAX or TensorFlow, which has no PyTorch settings."""
    is_torch = any(_some(_PYTORCH, facts.strings) for facts in job.ranks)
    return not is_torch and all(facts.format in _OTHER_FRAMEWORKS for facts in job.ranks)


def _some(pattern: re.Pattern[str], names: Iterable[str]) -> bool:
    return any(pattern.search(name) for name in names)


def text(setting: object) -> str | None:
    """A captured setting for a fix, numbers to four digits (bytes given in MiB come back rounded); None if not
    captured.
    """
    if isinstance(setting, float):
        return f"{setting:.4g}"
    return None if setting is None else str(setting)


def is_new(fix: Fix) -> bool:
    """True where a fix suggests another value than the present one."""
    return fix.current is None or _plain(fix.current) != _plain(fix.suggested)


def _plain(value: str) -> str:
    """A value normalised for comparison: 25, 25.0 and "25 " are equal."""
    plain = value.strip().lower()
    try:
        return f"{float(plain):g}"
    except ValueError:
        return plain
