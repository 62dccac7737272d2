"""The log of calls: read while it is written, after a kill, and full."""

from pathlib import Path

import pytest

from ddprof.capture.files.call_log import CAPACITY, CallLog, described, read_calls

PLACE = ("all_reduce", "0", "torch.float32", "4,8", "/home/someone/train.py", "train")


def test_a_call_is_inside_until_it_is_left(tmp_path: Path) -> None:
    log = CallLog(tmp_path / "rank0.calls")
    first = log.enter(described(PLACE), 1, -1, 20, 1_000)
    second = log.enter(described(("send", *PLACE[1:3], "", *PLACE[4:])), 1, 3, 21, 2_000)
    log.leave(first, 1_500)
    calls = read_calls(log.path)
    assert calls == log.recent()
    said = [(c["op"], c["done"], c["peer"], c["size"]) for c in calls]
    assert said == [("all_reduce", True, None, [4, 8]), ("send", False, 3, None)]
    assert calls[0]["line"] == {"file": "/home/someone/train.py", "line": 20, "function": "train"}
    log.leave(second, -1)
    assert not read_calls(log.path)[1]["done"]  # it ended by an exception


def test_the_oldest_calls_make_room_and_a_text_that_does_not_fit_is_left_out(tmp_path: Path) -> None:
    log = CallLog(tmp_path / "rank0.calls")
    for number in range(CAPACITY + 5):
        log.leave(log.enter(described(PLACE), number, -1, 20, number + 1), number + 2)
    assert [call["number"] for call in read_calls(log.path)] == list(range(5, CAPACITY + 5))
    log = CallLog(tmp_path / "rank0.calls")
    log.enter(described((*PLACE[:4], "/" + "x" * 900, "train")), 1, -1, 20, 1)
    log.enter(described(PLACE), 2, -1, 20, 2)
    assert [call["number"] for call in read_calls(log.path)] == [2]


@pytest.mark.parametrize("content", [b"", b"DDPROFC1", b"x" * 100_000])
def test_a_file_that_is_none_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "rank0.calls"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="not a log of calls"):
        read_calls(path)
