"""PyTorch memory snapshots, with the fields that torch.cuda.memory documents; made here, not recorded."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from ddprof.errors import NoUsableInput
from ddprof.readers import discover

MIB = 1 << 20
TORCH = "/env/lib/python3.11/site-packages/torch"


def frames(*places: tuple[str, int, str]) -> list[dict[str, Any]]:
    return [{"filename": file, "line": line, "name": name} for file, line, name in places]


FORWARD = frames((f"{TORCH}/nn/modules/linear.py", 125, "forward"), ("/home/me/model.py", 12, "forward"))
BACKWARD = frames((f"{TORCH}/autograd/graph.py", 829, "_engine_run_backward"), ("/home/me/train.py", 40, "main"))
OPTIMIZER = frames((f"{TORCH}/optim/adam.py", 150, "_init_group"), ("/home/me/train.py", 41, "main"))


def event(action: str, address: int, size: int, where: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {"action": action, "addr": address, "size": size, "frames": where or [], "stream": 0, "time_us": 1}


def said(folder: Path, events: list[dict[str, Any]], blocks: list[dict[str, Any]]) -> str:
    segment = {"device": 0, "address": 1000, "total_size": 2**31, "allocated_size": 1, "blocks": blocks}
    content = {"segments": [segment], "device_traces": [events], "allocator_settings": {}}
    file = folder / "snapshot.pickle"
    file.write_bytes(pickle.dumps(content, protocol=4))
    with pytest.raises(NoUsableInput) as raised:
        discover([file])
    return str(raised.value)


def test_the_peak_by_work_and_line(tmp_path: Path) -> None:
    events = [
        event("free_completed", 1000, 8 * MIB),  # was there before
        event("alloc", 2000, 60 * MIB, FORWARD),
        event("alloc", 3000, 30 * MIB, BACKWARD),
        event("free_requested", 2000, 60 * MIB),
        event("free_completed", 2000, 60 * MIB),
        event("alloc", 2000, 20 * MIB, OPTIMIZER),
    ]
    blocks = [{"size": 10 * MIB, "address": 9000, "state": "active_allocated", "frames": []}]
    blocks += [{"size": 5 * MIB, "address": 9900, "state": "inactive", "frames": []}]
    text = said(tmp_path, events, blocks)
    assert "no steps to analyze" in text and "\n" not in text
    assert "device 0 held 100 MiB at its peak" in text
    assert "forward 60 %, backward 30 %, before the recording 10 %" in text
    assert "most at model.py:12 60 MiB, train.py:40 30 MiB" in text


def test_blocks_alone_tell_what_is_held_at_the_end(tmp_path: Path) -> None:
    blocks = [
        {"size": 3 * MIB, "address": 1000, "state": "active_allocated", "frames": FORWARD},
        {"size": 1 * MIB, "address": 5000, "state": "active_awaiting_free", "frames": OPTIMIZER},
    ]
    text = said(tmp_path, [], blocks)
    assert "held 4 MiB" in text and "forward 75 %, optimizer 25 %" in text


def test_odd_values_are_no_crash(tmp_path: Path) -> None:
    events = [event("alloc", 1, -5), {"action": "alloc"}, {"action": ["x"], "addr": "y"}, "text"]
    assert "nothing was held" in said(tmp_path, events, [{"state": "active_allocated", "size": "big"}])  # type: ignore[list-item]


def test_a_pickle_that_asks_for_code_is_refused(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return (print, ("run",))

    (tmp_path / "s.pickle").write_bytes(pickle.dumps({"segments": [], "device_traces": [[Evil()]]}, protocol=4))
    with pytest.raises(NoUsableInput, match="refused"):
        discover([tmp_path / "s.pickle"])
