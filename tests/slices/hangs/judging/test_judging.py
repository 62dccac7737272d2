"""Verdicts: records that lack something, exceptions that are consequences, and who is said to wait for whom. And beside
PyTorch's own analyser of flight-recorder dumps: right wherever it is right."""

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
from hang_dumps import CASES, Job, played

from ddprof.slices.hangs.explain import explain
from ddprof.slices.hangs.judging.verdict import judge
from ddprof.slices.hangs.model import Call, Ending, Group, RankEvidence, StackFrame, user_frame

# Of a message torch's analyser names every rank of the group but one; of circles and chains no first cause.
_NOT_COMPARED = ("lost message", "two groups", "crossed", "crossed and awaited", "skipped and went on")
_NOT_COMPARED += ("crossed messages",)
# Tensors of one rank, of `n` elements times these: given, taken; W: once for each rank.
OPERATIONS = dict.fromkeys(("all_reduce", "broadcast", "reduce"), "1 1")
OPERATIONS |= {"_all_gather_base": "1 W", "_reduce_scatter_base": "W 1"}
GROUPS = {"0": Group("0", "default_pg", (0, 1))}
LOADER = StackFrame("/env/site-packages/torch/utils/data/dataloader.py", 1290, "_get_data")
STORE = StackFrame("/env/site-packages/torch/distributed/distributed_c10d.py", 5, "_store_based_barrier")
MINE = StackFrame("/home/me/train.py", 7, "main")
OWN = StackFrame("/env/lib/python3.11/site-packages/ddprof/capture/patch.py", 5, "wrapped")
TORCH = StackFrame("/env/lib/python3.11/site-packages/torch/nn/modules/module.py", 9, "forward")
CLOSED = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [::1]:3"
# The exception of rank 1 beside one of a closed connection on rank 0; whether it is a cause of its own.
EXCEPTIONS = [
    ("ConnectionResetError", "[Errno 104] Connection reset by peer", (MINE,), True),
    ("ReadTimeout", "HTTPSConnectionPool(host='store'): Read timed out.", (MINE,), True),
    ("RuntimeError", "DataLoader timed out after 5 seconds", (LOADER, MINE), True),
    *(("RuntimeError", CLOSED, (MINE,), False), ("TrainingFailed", f"step 7: {CLOSED}", (MINE,), False)),
]
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


@pytest.mark.torch
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


@pytest.mark.torch
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


def left(rank: int, calls: tuple[Call, ...], ending: Ending, *frames: StackFrame, **more: Any) -> RankEvidence:
    """The evidence of a rank that left calls."""
    return RankEvidence(rank, calls=calls, groups=GROUPS, frames=frames, ending=ending, has_calls=True, **more)


@pytest.mark.parametrize("frames,line", [((OWN, TORCH, MINE), MINE), ((OWN, TORCH), TORCH), ((OWN,), None), ((), None)])
def test_the_users_line_comes_first_captures_own_never(frames: tuple[StackFrame, ...], line: StackFrame | None) -> None:
    assert user_frame(frames) == line


def test_a_rank_whose_calls_have_no_times_is_not_judged_by_them_and_the_last_call_is_what_failed() -> None:
    calls = [(Call("0", 1, "all_reduce", done=False, entered_ns=entered_ns),) for entered_ns in (None, 10**9)]
    stop = Ending("stopped", 100 * 10**9)
    assert judge([left(rank, of, stop, seen_ns=stop.at_ns) for rank, of in enumerate(calls)]).kind == "inside"
    done = tuple(Call("0", number, "all_reduce", done=True) for number in (1, 2, 3))
    lost = Ending("error", 2, "RuntimeError", "[gloo] Connection closed by peer")
    hang = judge([left(0, done, lost), left(1, done[:2], Ending("finished", 1))], hang_seen=True)
    assert (hang.kind, hang.ranks, hang.stuck[0].number) == ("ended", (1,), 3), hang.sentence


def failed(rank: int, done: bool, error: str, message: str, *frames: StackFrame) -> RankEvidence:
    ending = Ending("error", (9 - rank) * 10**9, error, message, frames)
    return left(rank, (Call("0", 1, "all_reduce", done, entered_ns=10**9),), ending, *frames)


@pytest.mark.parametrize(("error", "message", "frames", "is_own"), EXCEPTIONS)
def test_only_the_words_of_c10d_excuse_an_exception(error: str, message: str, frames, is_own: bool) -> None:
    ranks = [failed(0, False, "RuntimeError", CLOSED, MINE), failed(1, True, error, message, *frames)]
    hang = judge(ranks, hang_seen=True)
    assert (hang.kind == "error" and hang.ranks == (1,)) is is_own, hang.sentence


def test_the_rank_that_waits_for_the_store_is_said_to_do_so_and_all_where_all_do_at_an_unknown_line() -> None:
    first = Call("0", 1, "all_reduce", done=True)
    line = StackFrame("/home/me/train.py", 9, "main")
    stuck = Call("0", 2, "all_reduce", done=False, frames=(line,))
    late = left(1, (first,), Ending("stopped"), STORE, StackFrame("/home/me/train.py", 40, "sync"))
    hang = judge([left(0, (first, stuck), Ending("stopped"), line), late], hang_seen=True)
    waits = "rank 0 waits for it in all_reduce 2 of the default group (train.py:9 in main())"
    assert hang.sentence == f"Rank 1 waits for the store (train.py:40 in sync()); {waits}."
    assert (hang.kind, hang.ranks) == ("store", (1,))
    ranks = [RankEvidence(rank, ending=Ending("error", 1, "DistStoreError", "wait timeout after")) for rank in (0, 1)]
    assert judge(ranks).sentence == "Ranks 0, 1 wait for the store."
