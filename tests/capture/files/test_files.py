"""Files of a run folder: their names, the ring of the last steps and the log of calls, read while they are written."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from damage import step

from ddprof.capture.files.call_log import CAPACITY, CallLog, described, read_calls
from ddprof.capture.files.layout import parse_stem
from ddprof.capture.files.ring import StepRing, read_ring

WHO = {"rank": 0, "host": "h"}
PLACE = ("all_reduce", "0", "torch.float32", "4,8", "/home/someone/train.py", "train")


def test_names() -> None:
    fields = parse_stem("rank3.node-a.77.1.0.pt.trace.json.gz")
    assert fields == {"rank": "3", "host": "node-a", "pid": "77", "restart": "1", "window": "0"}
    assert parse_stem("rank-70.Mar_25_20_48_12.2861.pt.trace.json.gz") is None


@pytest.mark.parametrize(
    ("read", "said", "content"),
    [
        *((read_ring, r"a\.ring", content) for content in (b"", b"nonsense" * 600, b"DDPROFR2")),
        *((read_calls, "not a log of calls", content) for content in (b"", b"DDPROFC1", b"x" * 100_000)),
    ],
)
def test_a_file_that_is_none_is_refused(read: Callable[[Path], object], said: str, content: bytes, path: Path) -> None:
    path.write_bytes(content)
    with pytest.raises(ValueError, match=said):
        read(path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.ring"


def test_ring_keeps_the_last_steps(path: Path) -> None:
    ring = StepRing(path, {"rank": 3, "host": "h"}, capacity=4)
    for number in range(6):
        ring.write(step(number, profiled=number == 5))
    content = read_ring(path)  # while the writer is alive
    ring.close()
    assert (content.rank, content.host, content.started_ns, content.damaged) == (3, "h", None, 0)
    assert content.written == 6 and list(content.steps) == [step(2), step(3), step(4), step(5, profiled=True)]


RANKS = ("null", '"1"', "true", "NaN", "1e3", "-1", "18446744073709551616")
IDENTITIES = (
    *("{}", "[]", "nonsense", '{"rank": 0}', "[" * 3000, '{"a":' * 700),
    *(f'{{"rank": {rank}, "host": "h"}}' for rank in RANKS),
    *(f'{{"rank": 0, "host": "{host}"}}' for host in ("\\u001b[31m", "\\ud800")),
)
NOBODYS = [(64, struct.pack("<q", len(text)) + text.encode()) for text in IDENTITIES]
WRONG = [(offset, struct.pack("<q", value)) for offset in (8, 64) for value in (-1, 0, 1 << 62)]


@pytest.mark.parametrize(("offset", "written"), NOBODYS + WRONG)
def test_ring_that_does_not_say_whose_it_is_or_counts_wrong(path: Path, offset: int, written: bytes) -> None:
    StepRing(path, WHO).close()
    with path.open("r+b") as stream:
        stream.seek(offset)
        stream.write(written)
    with pytest.raises(ValueError, match=r"^a\.ring"):
        read_ring(path)


def test_records_that_no_step_wrote_are_counted_and_a_ring_is_not_made_through_a_link(path: Path) -> None:
    mine = path.with_name("mine")
    mine.write_text("precious")
    path.symlink_to(mine)
    StepRing(path, WHO).close()
    assert mine.read_text() == "precious" and path.stat().st_mode & 0o022 == 0
    assert read_ring(path).rank == 0
    ring = StepRing(path, {**WHO, "started_ns": "soon"}, capacity=8)
    good = [step(0), step(1)._replace(end_ns=90)]  # the clock was set back by 10 ns
    odd = {"number": -1, "end_ns": -5, "data_ns": 1 << 60, "start_ns": -1, "profiled": 7}
    for each in [*good, *(step(2)._replace(**{name: value}) for name, value in odd.items())]:
        ring.write(each)
    content = read_ring(path)
    assert (list(content.steps), content.damaged, content.started_ns) == (good, 5, None)


def test_a_call_is_inside_until_it_is_left(path: Path) -> None:
    log = CallLog(path)
    first = log.enter(described(PLACE), 1, -1, 20, 1_000)
    second = log.enter(described(("send", *PLACE[1:3], "", *PLACE[4:])), 1, 3, 21, 2_000)
    log.leave(first, 1_500)
    calls = read_calls(path)
    assert calls == log.recent()
    said = [(c["op"], c["done"], c["peer"], c["size"]) for c in calls]
    assert said == [("all_reduce", True, None, [4, 8]), ("send", False, 3, None)]
    assert calls[0]["line"] == {"file": "/home/someone/train.py", "line": 20, "function": "train"}
    log.leave(second, -1)
    assert not read_calls(path)[1]["done"]  # it ended by an exception


def test_the_oldest_calls_make_room_and_a_text_that_does_not_fit_is_left_out(path: Path) -> None:
    log = CallLog(path)
    for number in range(CAPACITY + 5):
        log.leave(log.enter(described(PLACE), number, -1, 20, number + 1), number + 2)
    assert [call["number"] for call in read_calls(path)] == list(range(5, CAPACITY + 5))
    log = CallLog(path)
    log.enter(described((*PLACE[:4], "/" + "x" * 900, "train")), 1, -1, 20, 1)
    log.enter(described(PLACE), 2, -1, 20, 2)
    assert [call["number"] for call in read_calls(path)] == [2]
