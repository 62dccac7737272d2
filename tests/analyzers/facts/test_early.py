"""Hosts that never wait for their device: the window opens on work whose launch it never saw."""

import numpy as np
import pytest

from ddprof.analyzers.facts.early import describe_early, is_early
from ddprof.analyzers.facts.model import COMMS, DEVICE_OPS, MESSAGES, NO_STRING
from ddprof.analyzers.facts.stepping.device_marks import host_steps
from ddprof.tables import NULL, Table

PERIOD, STEP_NS = 3, 1_000


def comms(early: int, steps: int) -> Table:
    """A stream with `early` communications, then PERIOD in each of `steps` steps; group by place in the step."""
    order = np.arange(early + steps * PERIOD)
    step, place = np.divmod(order - early, PERIOD)
    columns = {c.name: np.full(len(order), NULL if c.nullable else 0) for c in COMMS.columns}
    group = np.array((7, 8, 7))[place % 3]
    seq = np.where(group == 7, 2 * step + 100 + (place == 2), step + 50)
    of_launch = {"op": (1 + place, 0), "group": (group, NO_STRING), "seq": (seq, NULL)}
    of_launch["launch_ns"] = (step * STEP_NS + 10 * place, NULL)
    told = {name: np.where(order >= early, value, unknown) for name, (value, unknown) in of_launch.items()}
    times = {"start_ns": 200 * order, "end_ns": 200 * order + 100}
    return COMMS.table({**columns, **told, **times, "name": 40 + place})


def steps_of(count: int) -> Table:
    start = STEP_NS * np.arange(count)
    return host_steps(np.arange(count), start, start + STEP_NS)


@pytest.mark.parametrize("early", [1, 3, 5])
def test_early_communications_are_those_of_a_step_later(early: int) -> None:
    given = comms(early, 2)
    is_before = np.arange(len(given)) < early
    row = {"comm": early + 2, "is_send": True, "peer": 4, "group": 7, "size_bytes": 11, "tag": 0, "called_ns": 5}
    sent = MESSAGES.table({name: [value] for name, value in {**row, "is_lost": False}.items()})
    told, messages = describe_early(given, sent, steps_of(2), is_before)
    place = np.arange(-early, 0) % PERIOD
    for name in ("op", "group"):
        assert told[name][:early].tolist() == comms(0, 2)[name][place].tolist()
    for group in (7, 8):  # numbers run on without a hole across the first recorded launch
        assert (np.diff(told["seq"][told["group"] == group]) == 1).all()
    copies = [early - 1, *([early - 1 - PERIOD] if early > PERIOD else [])]
    assert sorted(messages["comm"].tolist()) == sorted([early + 2, *copies])


def test_early_is_what_precedes_a_first_launch_and_streams_that_do_not_repeat_are_left_alone() -> None:
    two = comms(2, 2)
    other_names, uneven = two.replace(name=np.array([99, *two["name"][1:]])), two.take(np.arange(7))
    for given in (other_names, uneven):
        told, _ = describe_early(given, MESSAGES.empty(), steps_of(2), np.arange(len(given)) < 2)
        assert (told["group"][:2] == NO_STRING).all() and (told["seq"][:2] == NULL).all()
    columns = {c.name: np.full(5, NULL if c.nullable else 0) for c in DEVICE_OPS.columns}
    launch = np.array([NULL, 5, NULL, NULL, 20])
    ops = DEVICE_OPS.table({**columns, "start_ns": [0, 10, 20, 15, 30], "track": [0, 0, 0, 1, 1], "launch_ns": launch})
    assert is_early(ops).tolist() == [True, False, False, True, False]
    assert not is_early(ops.replace(launch_ns=np.full(5, NULL))).any()
    launch = np.array([NULL, 12, NULL, NULL, NULL])
    started = ops.replace(track=np.array([0, 0, 0, 2, 2]), launch_ns=launch, start_ns=np.array([0, 15, 20, 5, 30]))
    assert is_early(started).tolist() == [True, False, False, True, False]
