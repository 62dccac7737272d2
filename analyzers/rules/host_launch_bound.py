"""The device drains faster than the host launches.

What it detects: a large part of the step is idle because the next kernel has not been launched, on every rank alike.
Why it costs: many small kernels cost more to launch than to run; the device waits for Python.
How the gain is priced: the run is replayed with launches that cost next to nothing (one CUDA graph per step); the
busiest stream then bounds the step.
How to fix: torch.compile, CUDA graphs, a larger batch, fused optimizers.
Limits: the price is an upper bound, because dynamic shapes and graph breaks keep some launches.
Sources: PyTorch CUDA graphs documentation; HTA documentation on kernel wait.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ddprof import averages
from ddprof.analyzers.execution.choose import execution_of
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.rules.evidence.spans import largest_gap
from ddprof.findings import Abstention, Candidate, Change, Evidence, Fix, Rule
from ddprof.units import format_share, format_us

MIN_SHARE = 0.015  # of the step idle before launches, healthy runs 0.1 %; queued kernels start within a microsecond


def detect(measures: Measures) -> Iterator[Candidate | Abstention]:
    """Idle for want of launches, on the typical rank."""
    job = measures.job
    if not execution_of(job).runs_ahead:
        yield Abstention(RULE.id, "a CPU run has no launch queue")
        return
    idle = measures.starved_us
    typical = averages.typical(idle)
    if typical < MIN_SHARE * measures.step_us:
        return
    worst = int(np.argmax(idle))
    kernels = float(np.median(measures.kernels_per_step))
    mean_us = float(np.median(measures.cause_us("compute"))) / kernels if kernels else 0.0
    yield Candidate(
        id=RULE.id,
        summary=f"the device waits for the host to launch kernels, {format_share(typical / measures.step_us)} of "
        "each step",
        ranks=(),
        lost_us=float(idle.mean()),
        changes=(Change("graph_launch"),),
        confidence=0.85 if job.ranks[0].step_source != "inferred" else 0.5,
        evidence=(
            Evidence(f"{kernels:.0f} kernels per step of {format_us(mean_us)} on average"),
            *largest_gap(measures, worst, "host_launch"),
        ),
        fixes=(
            Fix(
                setting="torch.compile",
                current="eager",
                suggested='torch.compile(model, mode="reduce-overhead")',
                patch='model = torch.compile(model, mode="reduce-overhead")  # fuses kernels and replays them as '
                "CUDA graphs",
                why="launching costs the host more than the kernels cost the device",
                source="PyTorch CUDA graphs and torch.compile documentation",
            ),
            Fix(
                setting="batch size",
                suggested="larger, if memory allows",
                why="longer kernels hide the launches",
                source="HTA documentation on kernel wait",
            ),
        ),
        ceiling_us=typical + float(measures.cause_us("comm_wait").min()),
        band=0.25,
        is_bound=True,
    )


RULE = Rule("host.launch_bound", "The host launches too slowly", detect, bound="host", upper_bound=True)
