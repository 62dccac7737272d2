"""Work belongs to the step that launched it, however far the host is ahead."""

import re

import numpy as np
import pytest

from ddprof.analyzers.facts.model import DEVICE_OPS, Work
from ddprof.analyzers.facts.stepping.device_time import in_device_time
from ddprof.analyzers.facts.stepping.steps import host_steps
from ddprof.tables import NULL, Table

MS = 1_000_000
Op = tuple[float, float, float | None, Work, int]  # start, end, launch (ms; None: not recorded), work, stream
FIRST = "0-1@.1, 1-100@.2 comm/1, 100-102@.3"  # ranks whose profilers started later hold the first communication


def device_ops(rows: list[Op], call_ms: float = 0.005) -> Table:
    start, end, launched, work, track = zip(*rows, strict=True)
    launch = [NULL if at is None else int(at * MS) for at in launched]
    returned = [at if at == NULL else at + int(call_ms * MS) for at in launch]
    missing = {c.name: np.full(len(rows), NULL if c.dtype == "int64" else 0) for c in DEVICE_OPS.columns}
    times = {"start_ns": [int(at * MS) for at in start], "end_ns": [int(at * MS) for at in end], "launch_ns": launch}
    return DEVICE_OPS.table({**missing, **times, "launch_end_ns": returned, "work": work, "track": track})


def bounds_ms(marks_ms: list[float], rows: list[Op], are_marked: bool = True, call_ms: float = 0.005) -> list[float]:
    """Starts on the device of the steps between the host's marks, and the end of the last, ms."""
    marks = np.array([int(at * MS) for at in marks_ms])
    of_host = host_steps(np.arange(len(marks) - 1), marks[:-1], marks[1:])
    steps = in_device_time(of_host, device_ops(rows, call_ms), are_marked)
    assert (steps["mark_ns"] == marks[:-1][steps["index"]]).all()
    return [float(at) / MS for at in [*steps["start_ns"].tolist(), int(steps["end_ns"][-1])]]


def ops(text: str) -> list[Op]:
    """Operations of "START-END@LAUNCH WORK/STREAM, ..." in ms; compute on stream 0 where nothing else is said."""
    found = re.findall(r"(-?[\d.]+)-([\d.]+)(?:@([\d.]+))?(?: ([a-z]+)/(\d))?", text)
    return [
        (float(start), float(end), float(at) if at else None, Work[(of or "compute").upper()], int(track or 0))
        for start, end, at, of, track in found
    ]


IN_STEPS = "1-9@.9, 11-19@10.9, 21-29@20.9"
HURRIED = ".01-30@.005, 30.01-60@2.005, 60.01-90@4.005, 90.01-120@6.005"
OVERLAPPED = "1-18@.99, 15-25@1.1 comm/1, 18-38@10.5, 35-45@10.6 comm/1"
CASES = {
    "a host that waits for its device": ([0, 10, 20, 30], IN_STEPS, [0, 10, 20, 30]),
    "all marks before the second step of the device": ([0, 2, 4, 6, 8], HURRIED, [0, 30, 60, 90, 120]),
    "work from before the first mark": ([0, 20, 40], "-5-12, 12-32@1, 32-52@21", [12, 32, 52]),
    "communication that the next step does not wait for": ([0, 10, 20], OVERLAPPED, [0, 18, 45]),
    "communication that the next step waits for": ([0, 10, 20], "1-15@.99, 15-25@1.1 comm/1, 25-40@10.5", [0, 25, 40]),
    "a copy of the next batch": ([0, 10, 20], "1-18@.99, 11-12@10.1 copy/2, 18-38@10.5", [0, 18, 38]),
    "a late first launch": ([0, 30], "20.5-30@20", [0, 30]),
    "a stream held up by one whose work is not in the file": ([0, 200], "150-155@.1 comm/1, 155-190@.2", [150, 200]),
    "a stream that waits for work without a launch": ([0, 200], "1-149.9 copy/2, 150-155@.1, 155-190@.2", [0, 200]),
    "no launches": ([0, 10, 20], "1-30", [0, 10, 20]),
    "marks at the ends into which nothing is launched": ([0, 10, 20, 30, 31], IN_STEPS[8:], [10, 20, 30]),
}


@pytest.mark.parametrize("case", CASES)
def test_steps_begin_where_the_device_takes_up_what_they_launched(case: str) -> None:
    marks_ms, found, expected = CASES[case]
    assert bounds_ms(marks_ms, ops(found)) == expected


@pytest.mark.parametrize("are_marked", [True, False])
def test_a_stream_busy_with_foreign_work_and_a_module_that_loads(are_marked: bool) -> None:
    foreign = ", ".join(f"{150 + step}-{151 + step}@{0.1 + step / 10}" for step in range(9))
    rows = ops(f".2-.21@.1 compute/3, {foreign}")  # a stream of its own is free at once
    assert bounds_ms([0, 170], rows, are_marked) == [150, 170]
    assert bounds_ms([0, 200], ops("149-160@.1, 160-190@151"), are_marked, call_ms=149.5) == [0, 200]


def test_a_window_without_marks_keeps_work_whose_launch_was_not_recorded() -> None:
    assert bounds_ms([0, 60], ops("0-40, 40-60@39"), are_marked=False) == [0, 60]


SHORT = "102-102.2@.4 comm/1, 104-104.2@.5 comm/1, 106-106.2@.6 comm/1"


@pytest.mark.parametrize(
    ("later", "begins"),
    [
        (SHORT, 100),
        ("102-102.2@.4 comm/1, 104-104.2@.5 comm/1", 0),  # too few to know what it usually takes
        ("102-122@.4 comm/1, 124-134@.5 comm/1, 136-146@.6 comm/1", 0),  # it usually takes long
        (f"{SHORT}, 107-200@.7", 0),  # less than all else
    ],
)
def test_a_window_begins_when_the_profilers_of_all_ranks_have_started(later: str, begins: float) -> None:
    rows = ops(f"{FIRST}, {later}")
    assert bounds_ms([0, max(110, rows[-1][1])], rows, are_marked=False)[0] == begins


@pytest.mark.parametrize("are_marked", [True, False])
def test_work_without_a_length_tells_no_time(are_marked: bool) -> None:
    assert bounds_ms([0, 10, 20], ops("5-5@.1 compute/3, 15-15@10.1 compute/3"), are_marked)[0] == 0
