"""The optimizer runs as many tiny kernels.

What it detects: hundreds of short kernels, or operators of a CPU rank, inside the optimizer's range per step.
Why it costs: each kernel reads and writes a whole parameter again and pays for a launch; each operator for its Python.
How the gain is priced: the run is replayed with the optimizer as one pass of a few launches: a fused Adam moves each
byte once where the unfused one moves it about four times. On CPU ranks its steps take a quarter, as was measured.
How to fix: fused=True (on CPUs from PyTorch 2.4 on), or foreach=True on devices.
Limits: operators of a CPU rank count where they are mostly their call. Needs optimizer ranges in the trace (PyTorch
writes them by itself). They name the class: for one without a fused version no gain is claimed.
Sources: torch profiler pattern matcher (single-tensor optimizer); torch.optim documentation.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ddprof import intervals
from ddprof.analyzers.execution.choose import execution_of
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.host_costs import STEPPING, WRAPPERS, optimizer_classes, part_of, part_us
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.replay.changes.work import FUSED_CPU_SHARE, FUSED_DEVICE_SHARE, FUSED_HOST_SHARE
from ddprof.analyzers.rules.evidence.present import text
from ddprof.analyzers.rules.evidence.spans import optimizer_step
from ddprof.finding_ids import COMPUTE_UNFUSED_OPTIMIZER
from ddprof.findings import Abstention, Basis, Candidate, Change, Evidence, Fix, Rule
from ddprof.units import format_us

MIN_KERNELS = 60  # foreach and fused run a few dozen at most
MIN_SHARE = 0.02  # of the step, in the optimizer's kernels
EAGER_US = 20.0  # an operator of a CPU rank that takes no longer is mostly its call (facts/cpu/rank.py)
FUSED = ("AdamW", "Adam", "SGD", "Adagrad")  # torch 2.13


def detect(measures: Measures) -> Iterator[Candidate | Abstention]:
    """Find optimizers that run as many tiny kernels."""
    kernels = float(np.median(measures.optimizer_kernels))
    time_us = float(np.median(measures.optimizer_us))
    execution = execution_of(measures.job)
    change, left = Change("scale_kernels", (), (FUSED_DEVICE_SHARE, FUSED_HOST_SHARE), "optimizer"), FUSED_DEVICE_SHARE
    if execution.computes_on_host:
        kernels, time_us = np.median([_on_host(facts) for facts in measures.job.ranks], axis=0).tolist()
        change, left = Change("scale_part", (), (FUSED_CPU_SHARE,), STEPPING), FUSED_CPU_SHARE
        if time_us > EAGER_US * kernels:
            return  # it is the bytes that take long, of which no recording says what one pass takes
    if kernels < MIN_KERNELS or time_us < MIN_SHARE * measures.step_us:
        return
    # By PyTorch's ranges around their steps.
    classes = sorted({one for facts in measures.job.ranks for one in optimizer_classes(facts).values()})
    if others := [name for name in classes if name not in (*FUSED, *WRAPPERS)]:
        spent = f"{kernels:.0f} {execution.work_noun} of {' and '.join(others)} take {format_us(time_us)}"
        yield Abstention(RULE.id, f"{spent}: no fused version is known")
        return
    fused = next((name for name in FUSED if name in classes), FUSED[0])
    yield Candidate(
        id=RULE.id,
        summary=f"the optimizer runs as {kernels:.0f} {execution.work_noun} per step, {format_us(time_us)} in all",
        lost_us=time_us * (1 - left),
        changes=(change,),
        basis=Basis.RECORDED,
        evidence=(
            Evidence(f"{kernels:.0f} {execution.work_noun} of the optimizer, {format_us(time_us / kernels)} for each"),
            *optimizer_step(measures),
        ),
        fixes=(
            Fix(
                setting="fused",
                current=text(measures.settings.optimizer.fused) or "False",
                suggested="True",
                applies=(("fused", True),),
                patch=f"torch.optim.{fused}(model.parameters(), fused=True)",
                why="one kernel per group of parameters reads and writes each value once",
                source="torch.optim documentation",
            ),
        ),
    )


def _on_host(facts: RankFacts) -> tuple[float, float]:
    """Operators per step in the optimizer's steps of a CPU rank, and these steps' time, us."""
    start = facts.host_operators["start_ns"]
    called = intervals.contains(part_of(facts, STEPPING), start) & facts.is_issued_in_steps(start)
    return called.sum() / len(facts.steps), part_us(facts, STEPPING)


RULE = Rule(COMPUTE_UNFUSED_OPTIMIZER, "The optimizer is not fused", detect, bound="compute")
