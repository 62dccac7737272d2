"""A snapshot's pickle to columns: damaged, dangerous, of other versions, with millions of references; its replay."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from snapshots import FORWARD, MIB, Allocator, write

from ddprof.errors import NoUsableInput
from ddprof.readers import discover
from ddprof.readers.files.safe_pickle import UnsafePickle
from ddprof.readers.source import Source
from ddprof.slices.memory import content as reading
from ddprof.slices.memory.content import load_shared, read_snapshot
from ddprof.slices.memory.model import NO_STACK, Action, Snapshot
from ddprof.slices.memory.replay import Blocks, held_bytes, pair

EVENTS = st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.integers(1, 100)), max_size=60)
DAMAGED = [
    *(b"", b"\x80\x04", b"\x80\x04" + b"]" * 100, b"\x80\x04\xff.", b"(lp0\n."),
    b"\x80\x04r\xff\xff\xff\x7f.",  # a table of two milliards of references
    *(pickle.dumps([1], protocol=4)[:-2], pickle.dumps({"a": ["b"] * 9}, protocol=4)[:-4]),
]


def read(folder: Path, content: Any, protocol: int = 4) -> Snapshot:
    return read_snapshot(Source(str(write(folder / "s.pickle", content, protocol)), "memory_snapshot"))


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_events_blocks_and_segments(tmp_path: Path, protocol: int) -> None:
    allocator = Allocator(device=1)
    address = allocator.alloc(3 * MIB + 1, FORWARD)
    allocator.fail(9 * MIB, 7, FORWARD)
    snapshot = read(tmp_path, allocator.dump(), protocol)
    (device,) = snapshot.devices
    assert device.device == 1 and device.events["action"].tolist() == [Action.SEGMENT_ALLOC, Action.ALLOC, Action.OOM]
    assert device.events["address"].tolist()[1:] == [address, 7]
    assert device.blocks["size_bytes"].tolist() == [3 * MIB + 1]  # as asked for, not as rounded up
    assert device.segments["size_bytes"].tolist() == [20 * MIB]
    assert len(snapshot.stacks) == 1 and snapshot.stacks[0][1].line == 12


def test_torch_1_13_keeps_stacks_in_a_blocks_history_and_odd_values_are_left_out(tmp_path: Path) -> None:
    block = {"size": 4096, "state": "active_allocated", "history": [{"real_size": 4000, "frames": FORWARD}]}
    segment = {"device": 0, "address": 4096, "total_size": 2 * MIB, "blocks": [block]}
    (device,) = read(tmp_path, {"segments": [segment], "device_traces": []}).devices
    assert device.blocks["address"].tolist() == [4096] and device.blocks["stack"].tolist() == [0]
    events = [{"action": "alloc", "addr": 1, "size": -5}, {"action": "alloc"}, {"action": ["x"], "addr": "y"}, "text"]
    events += [{"action": "alloc", "addr": 64, "size": 8, "frames": "none", "category": [1]}]
    segment = {"device": "x", "blocks": [{"state": ["odd"], "size": "big"}, 7]}
    (device,) = read(tmp_path, {"segments": [segment, None], "device_traces": [events, 3]}).devices
    assert device.events["address"].tolist() == [64]
    assert device.events["stack"].tolist() == [NO_STACK] and device.events["told"].tolist() == [-1]
    assert not len(device.blocks) and not len(device.segments)


@pytest.mark.parametrize("address", [None, 2**63 - 50], ids=["unknown", "at the end of 64 bits"])
def test_no_address_of_a_block_is_made_up(tmp_path: Path, address: int | None) -> None:
    blocks = [{"size": 100, "state": "active_allocated"}, {"size": 200, "state": "active_allocated"}]
    segment = {"device": 0, "address": address, "total_size": 300, "blocks": blocks}
    (device,) = read(tmp_path, {"segments": [segment], "device_traces": []}).devices
    assert device.blocks["address"].tolist() == ([] if address is None else [address])


def test_a_stack_is_looked_at_once_and_one_list_not_many_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = FORWARD * 50
    events = [{"action": "alloc", "addr": at, "size": 1, "time_us": at, "frames": shared} for at in range(10_000)]
    snapshot = read(tmp_path, {"segments": [], "device_traces": [events]})  # as a tree: four million values
    assert len(snapshot.stacks) == 1 and len(snapshot.devices[0].events) == 10_000
    monkeypatch.setattr(reading, "MAX_EVENTS", 5_000)
    with pytest.raises(NoUsableInput, match="more than 5000 events"):
        read(tmp_path, {"segments": [], "device_traces": [[{"action": "alloc", "addr": 1, "size": 1}] * 1_000] * 10})


class Evil:
    def __reduce__(self) -> Any:
        return (print, ("run",))


def test_a_snapshot_that_asks_for_code_is_refused_and_any_other_says_what_to_type(tmp_path: Path) -> None:
    with pytest.raises(NoUsableInput, match="refused"):
        read(tmp_path, {"segments": [], "device_traces": [[Evil()]]})
    write(tmp_path / "a.pickle", Allocator().dump())
    with pytest.raises(NoUsableInput, match="memory snapshot, which holds no events: `ddprof analyze` alone reads"):
        discover([tmp_path / "a.pickle"])


@pytest.mark.parametrize("content", DAMAGED)
def test_damage_is_a_value_error(content: bytes) -> None:
    with pytest.raises(ValueError):
        load_shared(content)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_values_come_back_as_they_were_and_code_is_refused(protocol: int) -> None:
    value = {"a": [1, 255, 70_000, 2**40, -1, 1.5, None, True], "b": ("x", "y" * 300), "c": [], "d": {}, "e": ()}
    assert load_shared(pickle.dumps(value, protocol=protocol)) == value
    with pytest.raises(UnsafePickle):
        load_shared(pickle.dumps([Evil()], protocol=protocol))


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
    assert held_bytes(blocks, len(events)).tolist() == curve and min(curve) >= 0 and blocks.lost == lost
    for number in range(-1, len(events)):
        assert int(blocks.size_bytes[blocks.at(number)].sum()) == curve[number + 1]
