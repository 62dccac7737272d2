"""Beside PyTorch's own analyser of flight-recorder dumps: right wherever it is right."""

import contextlib
import copy
import io
import logging
import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hang_cases import CASES, played
from hang_dumps import Job

from ddprof.slices.hangs.explain import explain

pytestmark = pytest.mark.torch
# Of a message torch's analyser names every rank of the group but one; of circles and chains no first cause.
_NOT_COMPARED = ("lost message", "two groups", "crossed", "crossed and awaited", "skipped and went on")
# Tensors of one rank, of `n` elements times these: given, taken; W: once for each rank.
OPERATIONS = dict.fromkeys(("all_reduce", "broadcast", "reduce"), "1 1")
OPERATIONS |= {"_all_gather_base": "1 W", "_reduce_scatter_base": "W 1"}
FAULTS = ("missing", "shape", "dtype", "operation", "skipped")


def _culprits_of_torch(job: Job) -> list[tuple[int, set[int]]]:
    """(number, ranks that are missing or differ) of each collective that torch's analyser finds fault with."""
    builder = pytest.importorskip("torch.distributed.flight_recorder.components.builder")
    config = pytest.importorskip("torch.distributed.flight_recorder.components.config_manager")
    details: dict[str, Any] = {f"r{rank}": copy.deepcopy(job.dump(rank)) | {"rank": rank} for rank in range(job.world)}
    arguments = config.JobConfig().parse_args(["--allow-incomplete-ranks", "folder"])
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            found = builder.build_db(details, arguments, job.dump(0)["version"]).collectives
    finally:
        logging.disable(logging.NOTSET)
    odd = [c for c in found if c.missing_ranks or not c.pass_check]
    return [(c.collective_seq_id, {*(c.missing_ranks or ()), *(c.mismatch_collectives or ())}) for c in odd]


@pytest.mark.parametrize("name", [name for name in CASES if name not in _NOT_COMPARED])
def test_ranks_and_collective_are_those_that_torch_names(name: str, tmp_path: Path) -> None:
    job = played(name)
    hang, torchs = explain([str(job.write(tmp_path))]), _culprits_of_torch(job)
    assert [stuck.number for stuck in hang.stuck] == [number for number, _ in torchs]
    for stuck, (_, culprits) in zip(hang.stuck, torchs, strict=True):
        late = {rank for rank in range(4) if name == "inside" and rank == 1}
        assert culprits <= set(stuck.missing) | {rank for variant in stuck.variants for rank in variant.ranks} | late
        if len(culprits) == 1 and not late:  # where torch names one rank, so do we
            assert set(hang.ranks) == culprits


@dataclass(frozen=True)
class Collective:
    """One of a step: its number of elements, its group, and the line that calls it."""

    op: str
    n: int
    group: str
    line: int

    def call(self, job: Job, ranks: list[int] | None = None, **other: Any) -> None:
        world = len(job.groups[self.group][1])
        given, taken = (self.n * (world if times == "W" else 1) for times in OPERATIONS[self.op].split())
        job.call(self.op, ranks, (given,), out=(taken,), line=self.line, group=self.group, **other)


def _random_job(seed: int) -> tuple[Job, str, int, set[int]]:
    """A job of 3 to 8 ranks in which fewer than half of a group go astray: which fault, in which collective, who."""
    rng = random.Random(seed)
    world = rng.randint(3, 8)
    part = sorted(rng.sample(range(world), rng.randint(3, world)))
    job = Job(world, rng.choice(["2.4", "2.6", "2.7", "2.8"]), groups={"1": ("dp", part)})
    kinds, calls = list(OPERATIONS), range(rng.randint(2, 6))
    step = [Collective(rng.choice(kinds), 2 ** rng.randint(3, 12), rng.choice("01"), 10 + at) for at in calls]
    fault, at = rng.choice(FAULTS), rng.randrange(len(step))
    for collective in step * rng.randint(1, 4) + step[:at]:
        collective.call(job)
    wrong, group = step[at], step[at].group
    ranks = list(job.groups[group][1])
    bad = sorted(rng.sample(ranks, rng.randint(1, (len(ranks) - 1) // 2)))
    good = [rank for rank in ranks if rank not in bad]
    number = 1 + sum(entry["process_group"][0] == group for entry in job.entries[good[0]])
    wrong.call(job, good, state="started")
    other = rng.choice([op for op in OPERATIONS if op != wrong.op])
    if fault == "shape":
        Collective(wrong.op, wrong.n // 2, group, wrong.line).call(job, bad, state="started")
    elif fault == "dtype":
        wrong.call(job, bad, state="started", dtype="Half")
    elif fault == "operation":
        Collective(other, wrong.n, group, 50).call(job, bad, state="started")
    elif fault == "skipped" and step[(at + 1) % len(step)].group == group:
        step[(at + 1) % len(step)].call(job, bad, state="started")
    return job, fault, number, set(bad)


def test_random_faults_are_named_rightly_wherever_torch_names_them_rightly(tmp_path: Path) -> None:
    right: Counter[str] = Counter()
    for seed in range(150):
        job, fault, number, bad = _random_job(seed)
        torchs = _culprits_of_torch(job)
        if not torchs or torchs[0] != (number, bad):
            continue
        right[fault] += 1
        hang = explain([str(job.write(tmp_path / str(seed)))])
        assert (hang.stuck[0].number, set(hang.ranks)) == (number, bad), f"seed {seed}, {fault}: {hang.sentence}"
    assert min(right[fault] for fault in FAULTS) >= 5, right
