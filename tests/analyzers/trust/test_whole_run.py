"""Timers of the whole run outvote the traced steps where they show the same time, and say nothing elsewhere."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from captured import meeting_in_backward, timed_steps
from labelled_runs import Runs, latest

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.measures import measure
from ddprof.analyzers.job.whole_run.cpu_waits import CpuShares
from ddprof.analyzers.trust.whole_run import contradicted_by_the_run
from ddprof.findings import Basis, Candidate

STRAGGLER = "straggler.host"
TRACED = range(5, 10)
US = 1_000
OWN_US, BACKWARD_US = 20_000, 10_000


def timed(traced_us: float, others_us: float, count: int = 60, every: int = 1) -> dict[str, Any]:
    """A rank that takes so much longer beside its backward pass in traced steps and in every N-th of the others."""
    more_us = [traced_us if at in TRACED else others_us * (at % every == 0) for at in range(count)]
    lengths_ns = ((OWN_US * (1 + 0.01 * (at % 3 - 1)) + BACKWARD_US + us) * US for at, us in enumerate(more_us))
    return {"steps": [step | {"backward_ns": BACKWARD_US * US} for step in timed_steps(lengths_ns, TRACED)]}


def verdict(labelled: Runs, traced: float, others: float, count: int = 60, every: int = 1) -> str | None:
    """Verdict on a finding whose late rank has so many times its lateness in the traced and the other steps."""
    bare = labelled(STRAGGLER).measures
    late = latest(bare)
    us = float(bare.late_us[late])
    sidecars = [timed(0.0, 0.0, count) for _ in bare.job.ranks]
    sidecars[late] = timed(traced * us, others * us, count, every)
    measures = measure(meeting_in_backward(labelled(STRAGGLER), *sidecars).job)
    rank = bare.job.rank_ids[late]
    return contradicted_by_the_run(Candidate(STRAGGLER, "late", us, Basis.COMPARED, (rank,)), measures)


def test_lateness_in_the_traced_steps_alone_is_not_accused(labelled: Runs) -> None:
    assert "only in the traced steps" in (verdict(labelled, 1.0, 0.0) or "")
    measures = labelled(STRAGGLER).measures
    for identifier, ranks in ((STRAGGLER, ()), ("host.checkpoint", (0,))):
        assert contradicted_by_the_run(Candidate(identifier, "", 1.0, Basis.COMPARED, ranks), measures) is None


@pytest.mark.parametrize(
    ("fed", "cpu", "cores", "waited", "stands"),
    [
        (True, 0.6, "0-3", 0.0, True),  # fed more, as its CPU time says
        (True, 0.4, "0-3", 0.0, False),
        (False, 0.6, "0-3", 0.0, False),
        (False, 0.4, "1", 0.4, True),  # it waits for cores of its own over the whole run, its peers do not
        (False, 0.4, "0-3", 0.4, False),  # where all may use the same cores, chance decides
        (False, 0.4, "1", 0.0, False),
    ],
)
def test_a_rank_fed_more_or_whose_own_cores_are_taken_is_late_in_backward(
    labelled: Runs, monkeypatch: pytest.MonkeyPatch, fed: bool, cpu: float, cores: str, waited: float, stands: bool
) -> None:
    late = latest(labelled(STRAGGLER).measures)

    def shares(ranks: Sequence[RankFacts]) -> CpuShares:
        is_late = np.arange(len(ranks)) == late
        places = tuple(("a", cores if taken else "0-3") for taken in is_late)
        return CpuShares(np.where(is_late, cpu, 0.4), np.where(is_late, waited, 0.0), places)

    is_fed = lambda ranks, _: np.arange(len(ranks)) == (late if fed else -1)  # noqa: E731
    monkeypatch.setattr("ddprof.analyzers.trust.whole_run.fed_more_each_step", is_fed)
    monkeypatch.setattr("ddprof.analyzers.trust.whole_run.run_shares", shares)
    assert (verdict(labelled, 1.0, 0.0) is None) == stands


@pytest.mark.parametrize(
    ("traced", "others", "count", "every"),
    [
        (1.0, 1.0, 60, 1),  # late all along
        (20.0, 5.0, 60, 1),  # late all along, and in the traced steps by chance four times as much
        (0.1, 0.0, 60, 1),  # late in its backward pass, where the timers hold waiting too
        (1.0, 0.0, 14, 1),  # hardly a step beside the traced ones
        (1.0, 30.0, 60, 30),  # seldom, and then for long: the mean is uncertain
    ],
)
def test_what_timers_leave_open_stands(labelled: Runs, traced: float, others: float, count: int, every: int) -> None:
    assert verdict(labelled, traced, others, count, every) is None


@pytest.mark.parametrize(("length", "is_told"), [(0.5, True), (0.95, False)])
def test_other_steps_without_room_for_the_lateness_outvote_few_traced_ones(
    labelled: Runs, length: float, is_told: bool
) -> None:
    run = labelled(STRAGGLER)
    lengths_ns = [int(length * run.measures.step_us * US)] * 60
    record = {"steps": [step | {"backward_ns": US} for step in timed_steps(lengths_ns, TRACED)]}
    measures = measure(meeting_in_backward(run, *[record] * len(run.job.ranks)).job)
    measures = replace(measures, late_us=np.full(len(run.job.ranks), 0.4 * measures.step_us))
    told = contradicted_by_the_run(Candidate(STRAGGLER, "late", 1.0, Basis.UNTESTED, (1,)), measures)
    assert ("others take" in (told or "")) == is_told
