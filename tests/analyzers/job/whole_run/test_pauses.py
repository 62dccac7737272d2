"""Pauses over the whole run count against the time outside the trace windows."""

import pytest
from captured import sidecar_of, steps, with_sidecars
from labelled_runs import Runs

from ddprof.analyzers.job.whole_run.pauses import _pauses, paused_shares

MS = 1_000_000


@pytest.mark.parametrize(("traced", "share"), [(range(20, 30), 0.1), (range(20, 55), None)])
def test_steps_in_trace_windows_are_no_part_of_the_run(traced: range, share: float | None) -> None:
    """Every step outside pauses for 10 % of its time; traced ones are ten times as long. Few others are no run."""
    begins_ns, every = 0, []
    for index in range(60):
        length_ns = (200 if index in traced else 20) * MS
        every.append({"index": index, "start_ns": begins_ns, "end_ns": begins_ns + length_ns})
        begins_ns += length_ns
    window = {"start_ns": every[traced[0]]["start_ns"], "end_ns": every[traced[-1]]["end_ns"]}
    gc = [{"start_ns": step["start_ns"] + 1, "dur_ns": 2 * MS} for step in every]
    sidecar = sidecar_of({"steps": every, "windows": [window], "gc": gc})
    pauses = _pauses(sidecar, 0, sidecar.gc)
    assert (pauses is None) is (share is None)
    assert pauses is None or (pauses.share, pauses.steps, pauses.count) == (pytest.approx(share), 40, 40)


def test_pauses_in_the_steps_that_timers_know_count_in_short_runs_too(labelled: Runs) -> None:
    """Rank 0 saves for 4 ms of each of 24 steps of 20 ms; a straggler's timers hold that, and it is no straggler's."""
    timed = {"steps": [step | {"profiled": step["index"] in range(5, 10)} for step in steps(24, 20 * MS)]}
    saves = [{"start_ns": index * 20 * MS + 1, "dur_ns": 4 * MS} for index in range(24)]
    ranks = with_sidecars(labelled("clean.ddp"), timed | {"checkpoints": saves}, timed, timed, timed).job.ranks
    assert paused_shares(ranks).tolist() == pytest.approx([0.2, 0.0, 0.0, 0.0])
