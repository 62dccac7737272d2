"""Steps of ranks: paired where nobody numbered them, left out with a note, and the one from which a rank is slower."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import retold
from captured import steps, with_sidecars
from labelled_runs import Labelled, Runs
from retold import Events

from ddprof.analyzers.facts.kernels import with_steps
from ddprof.analyzers.job.groups import comm_group_ids
from ddprof.analyzers.job.model import LeftOut
from ddprof.analyzers.job.rendezvous.by_time import paired_steps
from ddprof.analyzers.job.scope import left_out_note
from ddprof.analyzers.rules.straggler_compute import onset


def opened(labelled: Runs, folder: Path, first_steps: Sequence[float]) -> Labelled:
    """A run without step marks and sequence numbers whose ranks' windows open that many steps after its begin."""

    def change(ranks: Sequence[Events]) -> None:
        for events, first in zip(ranks, first_steps, strict=True):
            starts = sorted(float(e["ts"]) for e in events if retold.is_mark(e))
            whole = int(first)
            begin = starts[whole] + (first - whole) * (starts[whole + 1] - starts[whole])
            held = [e for e in events if "dur" not in e or float(e["ts"]) >= begin]
            events[:] = [e for e in held if not str(e["name"]).startswith("ProfilerStep")]
        retold.without_sequences(ranks)

    return retold.told(labelled("straggler.imbalance"), folder, change)


@pytest.mark.parametrize("first_steps", [(0, 0, 1, 1), (0, 1, 0, 0), (1, 0, 2, 0)])
def test_windows_apart_are_compared_in_common(labelled: Runs, tmp_path: Path, first_steps: tuple[float, ...]) -> None:
    run = opened(labelled, tmp_path, first_steps)
    truth = labelled("straggler.imbalance")
    assert {f.step_source for f in run.job.ranks} == {"annotation"} and run.job.rank_ids == (0, 1, 2, 3)
    assert run.report.steps.count == 5 - max(first_steps)
    assert [f.id for f in run.report.findings][:1] == [f.id for f in truth.report.findings][:1]
    assert run.report.ledger.job["comm_wait"] == pytest.approx(truth.report.ledger.job["comm_wait"], rel=0.3)


def test_steps_that_the_profiler_numbered_stay(labelled: Runs) -> None:
    ranks = labelled("clean.ddp").job.ranks
    found, are_numbered = paired_steps(ranks, *comm_group_ids(ranks))
    assert are_numbered and all(a is b for a, b in zip(found, ranks, strict=True))


@pytest.mark.parametrize("late", [(), (7,), (0, 2, 4, 6)])
def test_steps_are_those_of_the_collectives_that_they_issue(labelled: Runs, late: tuple[int, ...]) -> None:
    """On the device every second rank begins its steps nearer to the others' next; ranks 0 and 7 share no call."""
    ranks = []
    for facts in labelled("comm.slow_link").job.ranks:
        held = with_steps(facts, np.arange(int(facts.identity.rank in late), len(facts.steps)))
        own = held.steps.replace(index=np.arange(len(held.steps)))
        ranks.append(replace(held, step_source="annotation", steps=own))
    paired, are_numbered = paired_steps(ranks, *comm_group_ids(ranks))
    assert are_numbered
    assert [facts.steps["index"][0] for facts in paired] == [int(facts.identity.rank in late) for facts in paired]


def test_a_long_step_that_start_up_does_not_explain_is_told_with_both_readings(labelled: Runs) -> None:
    ranks = labelled("clean.ddp").job.ranks
    waited, cold = LeftOut(8, 194_000_000, "mostly waiting for the next batch"), LeftOut(7, 900_000_000, "loading code")
    (note,) = left_out_note(ranks, (cold, waited), 27_000_000, 1)
    assert "not counted in the mean step of 27 ms; if it comes again as often, a step takes 110 ms" in note.effect
    assert "again" not in left_out_note(ranks, (cold,), 27_000_000, 1)[0].effect
    record = {"steps": [step | {"profiled": step["index"] < 3} for step in steps(40, 31_000_000)]}
    timed = with_sidecars(labelled("clean.ddp"), *[record] * len(ranks)).job.ranks
    (note,) = left_out_note(timed, (cold, waited), 27_000_000, 1)
    assert note.effect.endswith("by the timers of the whole run the mean step takes 31 ms")


LEAST = 0.05
STEPS = np.arange(12)


def scatter(steps: int, seed: int = 0) -> np.ndarray:  # type: ignore[type-arg]
    return np.random.default_rng(seed).normal(0.0, 0.01, steps)


@pytest.mark.parametrize("since", [3, 4, 9])
def test_finds_when_a_device_became_slow(since: int) -> None:
    found = onset(scatter(12) + 0.3 * (since <= STEPS), LEAST)
    assert found is not None and found.step == since and found.excess == pytest.approx(0.3, abs=0.02)


def test_scatter_has_none() -> None:
    assert [seed for seed in range(200) if onset(10 * scatter(8, seed), LEAST) is not None] == []


# It passes; the rank catches up with its peers; two steps are too few.
@pytest.mark.parametrize("changed", [0.3 * ((STEPS >= 4) & (STEPS < 8)), -0.3 * (STEPS < 6), 0.3 * (STEPS >= 10)])
def test_what_is_no_onset(changed: np.ndarray) -> None:  # type: ignore[type-arg]
    assert onset(scatter(12) + changed, LEAST) is None
