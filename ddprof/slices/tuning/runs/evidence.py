"""Evidence in a run's folder: step times of the job, each rank's trained state, reason of a failure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
from msgspec import Struct

from ddprof.capture.files.layout import MANIFEST, SIDECAR_SUFFIX
from ddprof.sidecar import AllocatorCounts, RankDevice
from ddprof.sidecar.applied import SettingOutcome
from ddprof.trials.document import Held, RunPlan
from ddprof.untrusted.plain_text import clean
from ddprof.untrusted.regular_files import read_bounded

_MAX_BYTES = 256 << 20
_LOG_BYTES = 1 << 20  # of the end of a log
# Of the longest steps of a run this share is left out: what occurs less often than every twentieth step is not judged,
# and one hiccup of the machine does not decide between two runs.
LEFT_OUT_SHARE = 1 / 20
_SAMPLED_RANKS = 8  # whose values are kept of every run; digests are kept of all
LEAST_STEPS = 8  # timed ones: fewer say little of a run
_MEMORY = re.compile(r"out of memory|OutOfMemoryError|Cannot allocate memory|MemoryError|oom-kill", re.IGNORECASE)
_ERROR = re.compile(r"^(?:\[\w+\]:)?(?:E\d{4}.*\] )?\s*([A-Za-z_][\w.]*(?:Error|Exception|Interrupt)\b.*)")


class _Step(Struct):
    index: int
    end_ns: int


class _Parameters(Struct):
    digest: str
    sample: tuple[float, ...] = ()


class _Ended(Struct):
    steps: int
    parameters: _Parameters | None = None
    loss: float | None = None


class RankLeft(Struct):
    """The part of a sidecar that tuning reads."""

    rank: int
    restart: int = 0
    steps: tuple[_Step, ...] = ()
    trial: _Ended | None = None
    device: RankDevice | None = None
    allocator: AllocatorCounts | None = None


class RunManifest(Struct):
    """The part of a run's manifest that tuning reads: the job's ranks (None: not known), outcomes of its settings."""

    world_size: int | None = None
    applied: tuple[SettingOutcome, ...] = ()


def ranks_left(folder: Path) -> list[RankLeft]:
    """The sidecars of a run folder, the last start of each rank; unreadable ones are skipped."""
    by_rank: dict[int, RankLeft] = {}
    for path in sorted(folder.glob(f"*{SIDECAR_SUFFIX}")):
        try:
            left = msgspec.json.decode(read_bounded(path, _MAX_BYTES), type=RankLeft)
        except (OSError, msgspec.DecodeError, RecursionError):
            continue
        if left.rank not in by_rank or by_rank[left.rank].restart <= left.restart:
            by_rank[left.rank] = left
    return [by_rank[rank] for rank in sorted(by_rank)]


def manifest_of(folder: Path) -> RunManifest:
    """The manifest of a run folder; an empty one where it cannot be read."""
    try:
        return msgspec.json.decode(read_bounded(folder / MANIFEST, _MAX_BYTES), type=RunManifest)
    except (OSError, msgspec.DecodeError, RecursionError):
        return RunManifest()


def steps_made(ranks: Sequence[RankLeft]) -> int:
    """Number of whole steps that every rank has made."""
    return min((1 + max((step.index for step in rank.steps), default=-1) for rank in ranks), default=0)


def job_steps_us(ranks: Sequence[RankLeft], plan: RunPlan) -> list[float]:
    """The job's timed steps, each from the last rank's end to the last rank's next: host clocks need not agree."""
    ends = [{step.index: step.end_ns for step in rank.steps} for rank in ranks]
    common = set.intersection(*(set(end) for end in ends)) if ends else set()
    last = {index: max(end[index] for end in ends) for index in common}
    return [
        (last[index] - last[index - 1]) / 1e3
        for index in range(plan.warm_up, plan.last)
        if index in last and index - 1 in last
    ]


def run_step_us(steps_us: Sequence[float]) -> float | None:
    """The step time of a run; None where too few steps were timed."""
    if len(steps_us) < LEAST_STEPS:
        return None
    kept = np.sort(np.asarray(steps_us, np.float64))[: len(steps_us) - int(len(steps_us) * LEFT_OUT_SHARE)]
    mean = float(kept.mean())
    return mean if mean > 0 else None


def held_by_rank(ranks: Sequence[RankLeft], plan: RunPlan) -> dict[str, Held]:
    """Each rank's trained state when the run was ended after the planned steps; values of the first ranks."""
    return {
        str(rank.rank): Held(
            rank.trial.parameters.digest,
            rank.trial.parameters.sample if number < _SAMPLED_RANKS else (),
            rank.trial.loss,
        )
        for number, rank in enumerate(ranks)
        if rank.trial is not None and rank.trial.parameters is not None and rank.trial.steps == plan.last
    }


def memory(ranks: Sequence[RankLeft]) -> tuple[int | None, int | None]:
    """Device memory of the rank with the least to spare: peak reserved, and total. None on CPU ranks."""
    sizes = [
        (rank.allocator.peak_reserved_bytes, rank.device.total_memory_bytes)
        for rank in ranks
        if rank.allocator is not None and rank.device is not None
    ]
    whole = [(peak, total) for peak, total in sizes if peak is not None and total is not None]
    return min(whole, key=lambda row: row[1] - row[0]) if whole else (None, None)


def not_applied(rows: Sequence[SettingOutcome], wanted: Mapping[str, object]) -> str:
    """The reason why a fix has no effect, as none of its settings was applied; "" where one was, or it is unknown."""
    rows_of_setting = [row for row in rows if row.setting in wanted]
    if not rows_of_setting or any(row.applied for row in rows_of_setting):
        return ""
    return next((row.why for row in rows_of_setting if row.why), "not applied")


def reason(log: Path, code: int | None) -> str:
    """The reason why a run failed, in a line, from the end of its output."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _LOG_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    memory_line = next((line for line in reversed(lines) if _MEMORY.search(line)), None)
    if memory_line is not None:
        return f"out of memory: {clean(' '.join(memory_line.split()))[-160:]}"
    errors = [match.group(1) for line in lines if (match := _ERROR.match(line))]
    own_errors = [error for error in errors if "ChildFailedError" not in error]
    if own_errors:
        return f"exit code {code}: {clean(own_errors[0])[:200]}"
    killed = " (killed: out of memory?)" if code in (137, -9) else ""
    return f"exit code {code}{killed}"
