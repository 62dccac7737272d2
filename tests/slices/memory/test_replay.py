"""Blocks against a replay event by event."""

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from ddprof.slices.memory.replay import Blocks, held_bytes, pair

EVENTS = st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.integers(1, 100)), max_size=60)


def paired(events: list[tuple[bool, int, int]]) -> Blocks:
    values = np.array(events, np.int64).reshape(-1, 3)
    return pair(values[:, 1], values[:, 2], values[:, 0] == 1, np.arange(len(values)), len(values))


@given(EVENTS)
@example([])
def test_any_events_give_what_a_replay_one_by_one_gives(events: list[tuple[bool, int, int]]) -> None:
    held: dict[int, int] = {}
    seen: set[int] = set()
    for is_alloc, address, size in events:  # a first free: it was there before
        if not is_alloc and address not in seen:
            held[address] = size
        seen.add(address)
    curve, lost = [sum(held.values())], 0
    for is_alloc, address, size in events:
        lost += (address in held) == is_alloc
        if is_alloc:
            held[address] = size
        else:
            held.pop(address, None)
        curve.append(sum(held.values()))
    blocks = paired(events)
    found = held_bytes(blocks, len(events))
    assert found.tolist() == curve and (found >= 0).all() and blocks.lost == lost
    for number in range(-1, len(events)):
        assert int(blocks.size_bytes[blocks.at(number)].sum()) == curve[number + 1]
