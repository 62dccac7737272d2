"""The model of late ranks: who it names, why, and how its gates are counted."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.attribution.attribute import PRIORS, attribute
from benchmarks.attribution.gates import Gates, _Loader
from benchmarks.attribution.judge import Answer, judge
from benchmarks.attribution.own_time import OwnTime
from benchmarks.attribution.recurrence import recurrence
from benchmarks.attribution.splits import why_longer
from benchmarks.attribution_shadow import reliability, totals

QUIET = np.random.default_rng(5).normal(0, 0.002, (4, 8))
SLOW, STAGES = np.array([0, 0, 0.25, 0]), ((0,), (1,), (2,), (3,))
RECURRENCES = [
    *(("compute", [], [], [], False), ("compute", [(2, slice(None), 0.05)], [2], [], False)),
    ("compute", [(2, 3, 0.3)], [], [], False),  # one slow step is chance
    ("compute", [(0, 1, 0.1), (2, 3, 0.12), (3, 6, 0.1)], [], [], True),
    ("dataloader", [(1, slice(0, 8, 2), 0.2)], [], [1], False),  # a late batch now and then is its rank's loader
    ("compute", [(1, slice(None), 0.1), (3, slice(None), 0.1)], [1, 3], [], False),
]
REASONS = [
    *(({"pace": SLOW}, "straggler.compute"), ({"fed": SLOW}, "straggler.imbalance")),
    *(({"hot": (2,)}, "straggler.imbalance"), ({"stages": STAGES, "stage_pace": np.zeros(4)}, "pipeline.imbalance")),
    ({"stages": STAGES, "stage_pace": SLOW}, "straggler.compute"),
]


@pytest.mark.parametrize(("cause", "added", "steady", "own", "turns"), RECURRENCES)
def test_a_rank_is_late_where_its_time_comes_again(cause, added, steady, own, turns) -> None:
    excess = QUIET.copy()
    for rank, steps, size in added:
        excess[rank, steps] += size
    states = recurrence(excess, np.full(8, 0.01), PRIORS[cause])
    assert [np.flatnonzero(chance > 0.5).tolist() for chance in (states.steady, states.own)] == [steady, own]
    assert bool((states.event > 0.5).any(axis=1).sum() > 1) is turns


def job(compute_us: list[float], **known: object) -> OwnTime:
    """Four ranks and five steps of 1,000 us, with their compute."""
    spent = np.tile(np.array(compute_us)[:, None], 5) + 1000 * QUIET[:, :5]
    nothing, unknown = np.zeros((4, 5)), np.full(4, np.nan)
    given: dict[str, object] = {
        "causes": ("compute", "extra"), "us": np.array([spent, nothing]), "step_us": 1000.0,
        "met_us": 1000.0 - spent.mean(axis=1), "pace": np.zeros(4), "stage_pace": unknown, "fed": np.zeros(4),
        "more": np.zeros(4), "hot": (), "alone": (), "stages": (), "hosts": ((0,), (1,), (2,), (3,)),
        "rank_ids": (0, 1, 2, 3), "on_device": True,
    }  # fmt: skip
    return OwnTime(**given | known)


@pytest.mark.parametrize(("known", "why"), REASONS)
def test_what_is_known_of_kernels_and_batches_tells_a_slow_device_from_more_work(known, why) -> None:
    own = job([800, 800, 1000, 800], **known)
    chances = why_longer(own, (2,))
    (late,) = attribute(own)
    assert (late.positions, late.id, max(chances, key=chances.__getitem__)) == ((2,), why, why)
    assert sum(rival.share for rival in late.rivals) == pytest.approx(1)
    # What is not fed to one rank of four goes to all four.
    assert late.gain_us == pytest.approx(150 if "fed" in known else 200, rel=0.05)


def test_half_of_the_ranks_may_be_late_and_no_more() -> None:
    assert [late.positions for late in attribute(job([800, 900, 900, 800]))] == [(1, 2)]
    assert attribute(job([800, 800, 800, 800])) == ()


def test_answers_are_judged_by_their_ranks_and_whole_jobs_accuse_nobody() -> None:
    fault = {"id": "straggler.compute", "acceptable_ids": [], "culprit_ranks": [1], "acceptable_culprits": [[1]]}
    label = {"faults": [{**fault, "recoverable_us": 90.0}], "step_us": 1000.0}
    named, other = (Answer("straggler.compute", (rank,), 0.9, 100.0) for rank in (1, 2))
    right, wrong, healthy = judge(label, [named]), judge(label, [other]), judge({"faults": []}, [named])
    assert right is not None and wrong is not None and healthy is not None
    assert right.is_right and right.gain_error == pytest.approx(0.01)
    assert wrong.verdict == (True, False, 1) and healthy.verdict == (None, None, 1)
    assert judge({"faults": [{**fault, "id": "comm.slow_link"}]}, []) is None
    assert len([*totals({"model": [right, wrong, healthy]})]) == 2
    assert [*reliability([right, wrong])][-1] == "expected calibration error 40.0%"


def test_a_gate_that_changes_nothing_is_counted_as_such(tmp_path: Path) -> None:
    path = tmp_path / "deciding.py"
    path.write_text("def late(a, b):\n    if a > 3:\n        return a > 1 and b > 1\n    a &= b\n    return a | 1\n")
    gates, module = Gates(), type(sys)("deciding")
    _Loader("deciding", str(path), gates).exec_module(module)
    for gates.recording, pair in (("x", (4, 1)), ("y", (2, 2)), ("z", (5, 1))):
        module.late(*pair)
    decided = {words: (reached, decides) for _, _, words, reached, decides in gates.rows()}
    assert decided["b > 1"] == (2, 2) and decided["a > 1"] == (2, 0) and decided["a > 3"] == (3, 1)
