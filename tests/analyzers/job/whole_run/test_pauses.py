"""Pauses over the whole run count against the time outside the trace windows."""

import pytest
from captured import sidecar_of

from ddprof.analyzers.job.whole_run.pauses import _pauses

MS = 1_000_000


@pytest.mark.parametrize(("traced", "share"), [(range(20, 30), 0.1), (range(20, 55), None)])
def test_steps_in_trace_windows_are_no_part_of_the_run(traced: range, share: float | None) -> None:
    """Every step outside pauses for 10 % of its time; traced ones are ten times as long. Few others are no run."""
    begins_ns, steps = 0, []
    for index in range(60):
        length_ns = (200 if index in traced else 20) * MS
        steps.append({"index": index, "start_ns": begins_ns, "end_ns": begins_ns + length_ns})
        begins_ns += length_ns
    window = {"start_ns": steps[traced[0]]["start_ns"], "end_ns": steps[traced[-1]]["end_ns"]}
    gc = [{"start_ns": step["start_ns"] + 1, "dur_ns": 2 * MS} for step in steps]
    sidecar = sidecar_of({"steps": steps, "windows": [window], "gc": gc})
    pauses = _pauses(sidecar, 0, sidecar.gc)
    assert (pauses is None) is (share is None)
    assert pauses is None or (pauses.share, pauses.steps, pauses.count) == (pytest.approx(share), 40, 40)
