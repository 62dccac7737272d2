"""Workers that wait for one another: within a rank, over the ranks of a host, by their ends and by their lines."""

from dataclasses import replace

import numpy as np
import pytest
from labelled_runs import Runs

from ddprof.analyzers.job.whole_run.fetch_turns import in_turn, with_turns
from ddprof.sidecar import FetchSpan, Sidecar, TimedFetches, WorkerLine

MS = 1_000_000


def loader(rows: list[tuple[int, int, int]], *lines: WorkerLine) -> TimedFetches:
    """Fetches of (worker, start, duration), ms."""
    spans = tuple(FetchSpan(worker, start * MS, took * MS) for worker, start, took in rows)
    return TimedFetches(2, 400 * MS, 8, spans=spans, lines=lines)


def under_a_lock(workers: int, hold_ms: int, batches: int, samples: int = 1) -> list[list[tuple[int, int, int]]]:
    """Per worker its fetches, with the lock taken for each sample, by whichever worker waits then (seeded)."""
    draw = np.random.default_rng(3)
    rows: list[list[tuple[int, int, int]]] = [[] for _ in range(workers)]
    begun, made = [0] * workers, [0] * workers
    for turn in range(1, workers * samples * batches + 1):
        worker = int(draw.integers(workers))
        made[worker] += 1
        if made[worker] == samples:
            rows[worker].append((worker, begun[worker], turn * hold_ms - begun[worker]))
            begun[worker], made[worker] = turn * hold_ms, 0
    return rows


def asking(share: float, samples: int = 60) -> WorkerLine:
    return WorkerLine("data.py", 10, "__getitem__", round(share * samples), share, "flock", "lock")


def test_a_lock_within_a_rank_and_one_of_all_ranks_of_a_host() -> None:
    first, second = under_a_lock(2, 400, 12)
    turns = in_turn([loader([*first, *second])])
    assert turns is not None and (turns.each_ns, turns.alone_ns) == (400 * MS, 400 * MS)
    assert in_turn([loader([(0, 400 * n, 400) for n in range(20)])]) is None  # a single worker waits for nobody
    a, b, c, d = under_a_lock(4, 100, 40)
    ranks = [loader([*a, *b]), loader([*c, *d])]
    turns = in_turn(ranks)
    assert turns is not None and turns.each_ns == 100 * MS
    assert all(in_turn([rank]) is None for rank in ranks)  # alone, neither shows it


def test_a_lock_taken_for_each_sample_shows_in_the_lines() -> None:
    rows = under_a_lock(4, 3, 30, samples=8)
    pools = {share: [loader([*rows[n], *rows[n + 1]], asking(share)) for n in (0, 2)] for share in (0.74, 0.3)}
    turns = in_turn(pools[0.74])
    assert turns is not None and turns.each_ns == pytest.approx(24 * MS, rel=0.1)
    assert turns.alone_ns == pytest.approx(0.26 * 4 * 24 * MS, rel=0.1)
    assert in_turn(pools[0.3]) is None  # it is free most of the time
    assert in_turn([loader([*rows[n], *rows[n + 1]], asking(0.74, 8)) for n in (0, 2)]) is None


@pytest.mark.parametrize("seed", range(8))
def test_workers_of_a_remote_store_do_not_fetch_in_turn(seed: int) -> None:
    """Each waits 400 ms, give or take, for an answer of its own, whatever the phase in which they began."""
    draw = np.random.default_rng(seed)
    rows: list[list[tuple[int, int, int]]] = []
    for worker in range(4):
        at, own = int(draw.integers(0, 400)), []
        for took in draw.normal(400, 400 * draw.uniform(0, 0.4), 20).clip(50).astype(int).tolist():
            own.append((worker, at, took))
            at += took
        rows.append(own)
    waiting = WorkerLine("data.py", 10, "__getitem__", 58, 0.97, "recv", "network")
    pool = [loader([*rows[n], *rows[n + 1]], waiting) for n in (0, 2)]
    assert in_turn(pool) is None and all(in_turn([rank]) is None for rank in pool)


@pytest.mark.parametrize("hosts,ranks,turn_ms", [(("a", "a"), 2, 200), (("a", "b"), 1, None), ((None, None), 1, None)])
def test_a_host_shares_a_lock(labelled: Runs, hosts: tuple[str | None, ...], ranks: int, turn_ms: int | None) -> None:
    a, b, c, d = under_a_lock(4, 100, 40)
    known = [Sidecar(fetching=loader([*first, *second])) for first, second in ((a, b), (c, d))]
    ranks_of_two = zip(labelled("clean.ddp").job.ranks, hosts, known, strict=False)
    given = [replace(f, identity=replace(f.identity, host=host), sidecar=sidecar) for f, host, sidecar in ranks_of_two]
    for facts in with_turns(given):
        timed = facts.sidecar.fetching
        assert timed is not None and timed.turn_ranks == ranks
        assert timed.turn_ns == (None if turn_ms is None else turn_ms * MS)  # a round of both: one batch for each
