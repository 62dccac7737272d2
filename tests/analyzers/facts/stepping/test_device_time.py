"""Work belongs to the step that launched it, however far the host is ahead."""

from __future__ import annotations

import numpy as np
import pytest

from ddprof.analyzers.facts.model import DEVICE_OPS, Work
from ddprof.analyzers.facts.stepping.device_time import in_device_time
from ddprof.analyzers.facts.stepping.marks import host_steps
from ddprof.tables import NULL, Table

MS = 1_000_000
Op = tuple[float, float, float | None, Work, int]  # start, end, launch (ms; None: not recorded), work, stream
COMPUTE, COMM, COPY = Work.COMPUTE, Work.COMM, Work.COPY


def device_ops(found: list[Op], call_ms: float = 0.005) -> Table:
    """Operations; each launch call lasts `call_ms`."""
    launch = [NULL if op[2] is None else int(op[2] * MS) for op in found]
    missing = {
        column.name: np.full(len(found), NULL if column.dtype == "int64" else 0) for column in DEVICE_OPS.columns
    }
    given = {
        "start_ns": [int(op[0] * MS) for op in found],
        "end_ns": [int(op[1] * MS) for op in found],
        "launch_ns": launch,
        "launch_end_ns": [at if at == NULL else at + int(call_ms * MS) for at in launch],
        "work": [op[3] for op in found],
        "track": [op[4] for op in found],
    }
    return DEVICE_OPS.table({**missing, **given})


def bounds_ms(marks_ms: list[float], found: list[Op], are_marked: bool = True, call_ms: float = 0.005) -> list[float]:
    """Where the steps between the host's marks begin on the device, and the end of the last, ms."""
    marks = np.array([int(at * MS) for at in marks_ms])
    steps = in_device_time(
        host_steps(np.arange(len(marks) - 1), marks[:-1], marks[1:]), device_ops(found, call_ms), are_marked
    )
    assert (steps["mark_ns"] == marks[:-1][steps["index"]]).all()
    return [float(at) / MS for at in [*steps["start_ns"].tolist(), int(steps["end_ns"][-1])]]


def test_a_host_that_waits_for_its_device_marks_its_steps() -> None:
    found = [(10.0 * step + 1, 10.0 * step + 9, 10.0 * step + 0.9, COMPUTE, 0) for step in range(3)]
    assert bounds_ms([0, 10, 20, 30], found) == [0, 10, 20, 30]


def test_a_host_far_ahead_has_steps_as_long_as_its_device_takes() -> None:
    """All marks lie before the device has begun its second step."""
    found: list[Op] = [(0.01 + 30 * step, 30 + 30 * step, 2.0 * step + 0.005, COMPUTE, 0) for step in range(4)]
    assert bounds_ms([0, 2, 4, 6, 8], found) == [0, 30, 60, 90, 120]


def test_work_from_before_the_first_mark_is_of_no_step() -> None:
    early: list[Op] = [(-5, 12, None, COMPUTE, 0)]
    found: list[Op] = [(12 + 20 * step, 32 + 20 * step, 20 * step + 1, COMPUTE, 0) for step in range(2)]
    assert bounds_ms([0, 20, 40], early + found) == [12, 32, 52]


def test_communication_that_the_next_step_does_not_wait_for_does_not_delay_it() -> None:
    found: list[Op] = [
        (1, 18, 0.99, COMPUTE, 0), (15, 25, 1.1, COMM, 1),
        (18, 38, 10.5, COMPUTE, 0), (35, 45, 10.6, COMM, 1),
    ]  # fmt: skip
    assert bounds_ms([0, 10, 20], found) == [0, 18, 45]


def test_communication_that_the_next_step_waits_for_belongs_to_the_step_before() -> None:
    found: list[Op] = [(1, 15, 0.99, COMPUTE, 0), (15, 25, 1.1, COMM, 1), (25, 40, 10.5, COMPUTE, 0)]
    assert bounds_ms([0, 10, 20], found) == [0, 25, 40]


def test_copies_of_the_next_batch_begin_no_step() -> None:
    found: list[Op] = [(1, 18, 0.99, COMPUTE, 0), (11, 12, 10.1, COPY, 2), (18, 38, 10.5, COMPUTE, 0)]
    assert bounds_ms([0, 10, 20], found) == [0, 18, 38]


@pytest.mark.parametrize("are_marked", [True, False])
def test_a_stream_busy_with_work_that_is_not_in_the_file(are_marked: bool) -> None:
    other: list[Op] = [(0.2, 0.21, 0.1, COMPUTE, 3)]  # a stream of its own is free at once
    found: list[Op] = [(150 + step, 151 + step, 0.1 + step / 10, COMPUTE, 0) for step in range(9)]
    assert bounds_ms([0, 170], other + found, are_marked) == [150, 170]


def test_a_late_first_launch_is_the_hosts_time_though_the_launch_took_long() -> None:
    assert bounds_ms([0, 30], [(20.5, 30, 20, COMPUTE, 0)]) == [0, 30]


def test_a_stream_held_up_by_another_whose_work_is_not_in_the_file() -> None:
    found: list[Op] = [(150, 155, 0.1, COMM, 1), (155, 190, 0.2, COMPUTE, 0)]
    assert bounds_ms([0, 200], found) == [150, 200]


@pytest.mark.parametrize("are_marked", [True, False])
def test_a_module_that_loads_is_the_hosts_time(are_marked: bool) -> None:
    found: list[Op] = [(149, 160, 0.1, COMPUTE, 0), (160, 190, 151, COMPUTE, 0)]
    assert bounds_ms([0, 200], found, are_marked, call_ms=149.5) == [0, 200]


def test_a_window_without_marks_keeps_work_whose_launch_was_not_recorded() -> None:
    found: list[Op] = [(0, 40, None, COMPUTE, 0), (40, 60, 39, COMPUTE, 0)]
    assert bounds_ms([0, 60], found, are_marked=False) == [0, 60]


def test_a_trace_without_launches_keeps_its_marks() -> None:
    assert bounds_ms([0, 10, 20], [(1, 30, None, COMPUTE, 0)]) == [0, 10, 20]


def test_marks_at_the_ends_into_which_nothing_is_launched_are_no_steps() -> None:
    found: list[Op] = [(10.0 * step + 1, 10.0 * step + 9, 10.0 * step + 0.9, COMPUTE, 0) for step in (1, 2)]
    assert bounds_ms([0, 10, 20, 30, 31], found) == [10, 20, 30]
