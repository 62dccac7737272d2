"""Ranks whose hosts meet at the end of each step without a trace of it, written event by event."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from kineto_run import Script

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.assemble import job_facts
from ddprof.analyzers.job.model import JobFacts

STEPS, LAYERS, KERNEL_US = 5, 40, 60.0
RETURN_US = 40.0  # from the last arrival until the others have heard of it
Work = Callable[[Script, int, int], None]  # what a rank (number) does more in a step (number)


def nothing_more(script: Script, rank: int, step: int) -> None:
    """All ranks do the same."""


def train(ranks: int, more: Work = nothing_more, meets: bool = True, steps: int = STEPS) -> list[Script]:
    """One script per rank. Kernels scatter by 1 % from rank to rank and from step to step."""
    draw = np.random.default_rng(ranks)
    scripts = [Script() for _ in range(ranks)]
    for step in range(steps):
        begins = [script.now_us for script in scripts]
        for rank, script in enumerate(scripts):
            script.copy(2**20)
            for _ in range(LAYERS):
                script.launch("gemm", KERNEL_US * draw.normal(1.0, 0.01))
            more(script, rank, step)
            script.synchronise("cudaStreamSynchronize")
        last_us = max(script.now_us for script in scripts)
        for script, begin_us in zip(scripts, begins, strict=True):
            script.idle(last_us + RETURN_US - script.now_us if meets else 30.0)
            script.step(step + 1, begin_us)
    return scripts


def facts_of(
    scripts: Sequence[Script], folder: Path, only: Sequence[int] | None = None, shift_us: Sequence[float] | None = None
) -> list[RankFacts]:
    """Facts of the ranks, or of some of them; `shift_us`: by how much each rank's clock is ahead."""
    for script, shift in zip(scripts, shift_us or [0.0] * len(scripts), strict=True):
        for event in script.events:
            event["ts"] += shift
    chosen = range(len(scripts)) if only is None else only
    return [scripts[rank].facts(folder, rank, len(scripts)) for rank in chosen]


def job_of(scripts: Sequence[Script], folder: Path, only: Sequence[int] | None = None) -> JobFacts:
    return job_facts(facts_of(scripts, folder, only))


def longer_kernels(late: int, us: float = 1_500.0) -> Work:
    def more(script: Script, rank: int, step: int) -> None:
        if rank == late:
            script.launch("gemm", us)

    return more


def longer_python(late: int, us: float = 1_500.0) -> Work:
    """One rank runs Python in the middle of every step, and launches again."""

    def more(script: Script, rank: int, step: int) -> None:
        if rank == late:
            script.synchronise("cudaStreamSynchronize")
            script.idle(us)
        script.launch("gemm", KERNEL_US, times=20)

    return more


def saving_once(late: int, us: float = 9_000.0) -> Work:
    def more(script: Script, rank: int, step: int) -> None:
        if rank == late and step == 2:
            script.host("save_checkpoint", us, "user_annotation")

    return more
