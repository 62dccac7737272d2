"""Files of a run folder, written whole or not at all and read while they are written, requests, and settings."""

import gzip
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import get_ident
from typing import Any

import pytest
from damage import step
from hubs import on_another_thread
from runs import wait_until

from ddprof.capture.files import control
from ddprof.capture.files.call_log import CAPACITY, CallLog, described, read_calls
from ddprof.capture.files.config import CaptureConfig, rank_selected
from ddprof.capture.files.control import LESS, WHERE, ControlReader, Request, send
from ddprof.capture.files.last_resort import answer_signal, handles
from ddprof.capture.files.layout import CONTROL, host_label, parse_stem
from ddprof.capture.files.ring import StepRing, read_ring
from ddprof.capture.files.storage import MAX_JSON_BYTES, compress, names_in, open_to_append, read_object, write_json
from ddprof.capture.launcher.hang import ask_by_signal
from ddprof.slices.hangs.reading.collect import parse_stacks

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


def test_a_failed_write_leaves_nothing_and_compression_no_plain_file(tmp_path: Path) -> None:
    target = tmp_path / "folder-in-the-way"
    target.mkdir()
    with pytest.raises(OSError):
        write_json(target, {"a": 1})
    assert [path.name for path in tmp_path.iterdir()] == ["folder-in-the-way"]
    plain = tmp_path / "t.json"
    plain.write_text('{"a": 1}')
    assert gzip.decompress(compress(plain).read_bytes()) == b'{"a": 1}' and not plain.exists()


@pytest.mark.parametrize("kind", ["fifo", "link", "loop", "folder", "device", "gone"])
def test_what_is_no_file_is_not_waited_for(tmp_path: Path, kind: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    for name, target in (("link", "nowhere"), ("loop", "loop"), ("device", "/dev/zero")):
        (tmp_path / name).symlink_to(target)
    (tmp_path / "folder").mkdir()
    with pytest.raises((OSError, ValueError)):
        read_object(tmp_path / kind)


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"null", b"7", b'{"a":', b"\xff\xfe{}", b"{}" + b"\0" * 9, b'{"a":' * 200_000, b"[" * 200_000],
)
def test_what_is_no_object_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"^a\.json"):
        read_object(tmp_path / "a.json")


def test_numbers_that_json_has_not_are_missing_and_large_files_not_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": NaN, "b": [-Infinity, 1]}')
    assert read_object(tmp_path / "a.json") == {"a": None, "b": [None, 1]}
    with (tmp_path / "a.json").open("wb") as stream:
        stream.truncate(MAX_JSON_BYTES + 1)
    with pytest.raises(OSError, match=r"larger than 64 MiB.*a\.json"):
        read_object(tmp_path / "a.json")


def test_links_in_place_of_our_files_are_not_followed(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("precious")
    temporary = (f"a.json.{os.getpid()}.{get_ident()}.tmp", f"t.json.gz.{os.getpid()}.tmp")
    for name in ("a.json", "t.json.gz", "lines", *temporary):
        (tmp_path / name).symlink_to(mine)
    write_json(tmp_path / "a.json", {"a": 1})
    (tmp_path / "t.json").write_text("{}")
    compress(tmp_path / "t.json")
    with pytest.raises(OSError):
        open_to_append(tmp_path / "lines")
    assert mine.read_text() == "precious" and read_object(tmp_path / "a.json") == {"a": 1}
    assert gzip.decompress((tmp_path / "t.json.gz").read_bytes()) == b"{}"


def test_two_threads_can_write_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other begins and ends as the first is about to rename what it wrote."""
    path, rename = tmp_path / "a.json", os.replace

    def interrupted(*names: Path) -> None:
        monkeypatch.setattr(os, "replace", rename)
        on_another_thread(write_json, path, {"a": 1})
        rename(*names)

    monkeypatch.setattr(os, "replace", interrupted)
    write_json(path, {"a": 2})
    assert read_object(path) == {"a": 2} and list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_gone_has_no_names(tmp_path: Path) -> None:
    (tmp_path / "b.ring").touch()
    (tmp_path / "a.ring").touch()
    assert [path.name for path in names_in(tmp_path, ".ring")] == ["a.ring", "b.ring"]
    assert names_in(tmp_path / "gone", ".ring") == names_in(tmp_path / "a.ring", ".ring") == []


TRACE, STOP = Request("trace", 7, 2, "ddprof trigger"), Request("stop", 0, 0, "ddprof stop")
LEAVE_OUT = Request(LESS, 9, 1, "windows are dear")


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ControlReader]:
    """A rank that polls when the test says so; `asked` holds the numbers of its "where" requests."""
    monkeypatch.setattr(control, "_POLL_S", 60.0)
    send(tmp_path, TRACE)  # before the rank began
    reader = ControlReader(tmp_path, lambda: None, lambda: None, lambda _: None)
    reader.start()
    yield reader
    reader.stop()


def taken(reader: ControlReader) -> list[Request]:
    """Requests that a rank takes at its next step boundary."""
    reader._poll()
    return list(iter(reader.take, None))


def test_each_request_between_two_polls_is_taken_once(reader: ControlReader, tmp_path: Path) -> None:
    assert taken(reader) == []
    for request in (STOP, LEAVE_OUT):
        send(tmp_path, request)
    assert taken(reader) == [STOP, LEAVE_OUT] and taken(reader) == []
    send(tmp_path, TRACE)
    assert taken(reader) == [TRACE]


def test_a_stop_that_no_boundary_takes_is_heard_behind_a_later_request(reader: ControlReader, tmp_path: Path) -> None:
    stuck: list[bool] = []
    reader._on_stuck = lambda: stuck.append(True)
    send(tmp_path, STOP)
    send(tmp_path, LEAVE_OUT)
    reader._poll()
    for _ in range(2 * control._STUCK_POLLS):
        reader._watch_stop()
    assert stuck == [True]


def test_senders_at_once_lose_no_request(reader: ControlReader, tmp_path: Path) -> None:
    asked: list[int] = []
    reader._on_asked = asked.append
    with ThreadPoolExecutor(8) as pool:
        sent = list(pool.map(lambda _: send(tmp_path, Request(WHERE, 0, 0, "no step")), range(8)))
    reader._poll()
    assert asked == sorted(sent) and len(set(sent)) == 8


def test_requests_in_the_file_are_few(reader: ControlReader, tmp_path: Path) -> None:
    for _ in range(40):
        send(tmp_path, LEAVE_OUT)
    assert (tmp_path / CONTROL).stat().st_size < 4096
    assert len(taken(reader)) == control._KEPT


SENT = CaptureConfig("/r").as_path()
CHOSEN = {"all": range(8), "0,7": [0, 7], "sample:3": [0, 4, 7], "sample:1": [0], "sample:99": range(8)}


@pytest.mark.parametrize("spec", CHOSEN)
def test_rank_selection(spec: str) -> None:
    assert [rank for rank in range(8) if rank_selected(spec, rank, 8)] == [*CHOSEN[spec]]


@pytest.mark.parametrize("spec", ["sample:0", "some", "1,x", ""])
def test_rank_selection_that_cannot_be_read(spec: str) -> None:
    with pytest.raises(ValueError):
        rank_selected(spec, 0, 8)


@pytest.mark.parametrize(
    "run_dir", ["/r", "/a b/sample:8/%3A", "/run_dir=/x/run_dir=/y", "/é/☃/\n", os.fsdecode(b"/latin\xe9/1")]
)
def test_settings_survive_the_way_through_pythonpath(run_dir: str) -> None:
    config = CaptureConfig(run_dir=run_dir, skip_steps=9, ranks="a/b=c:d", record_shapes=False)
    text = config.as_path()
    assert not set(text) & set(":\n ☃") and CaptureConfig.from_path(text) == config


def test_fixes_travel_with_the_settings_and_leave_no_trace_where_there_are_none() -> None:
    config = CaptureConfig("/r", apply='[[{"num_workers":4},"a b/tr:ain.py:57","x"]]')
    text = config.as_path()
    assert CaptureConfig.from_path(text) == config and "/apply=" in text and ":" not in text
    assert "apply" not in SENT and "end_after" not in SENT
    ended = CaptureConfig("/r", end_after=55)
    assert CaptureConfig.from_path(ended.as_path()) == ended


@pytest.mark.parametrize("text", ["", "run_dir=/r", SENT[3:], SENT.replace("=5", "=x"), SENT.replace("/run_dir", "")])
def test_damaged_settings_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="settings of ddprof run are damaged"):
        CaptureConfig.from_path(text)


NUMBER = answer_signal() or 0
signalled = pytest.mark.skipif(not NUMBER, reason="no real-time signals here")

PROGRAM = """
import ctypes, faulthandler, os, signal, sys
from pathlib import Path
from ddprof.capture.files.last_resort import LastResort, answer_signal
if sys.argv[2] == "registered":
    faulthandler.register(answer_signal(), file=open(sys.argv[3], "w"))
path = Path(sys.argv[1]) / f"rank0.{sys.argv[4]}.{os.getpid()}.0.threads.txt"
resort = LastResort()
if sys.argv[2] != "bare":
    resort.arm(path)
def holds_the_lock() -> None:
    mutex = ctypes.create_string_buffer(128)
    print("ready", flush=True)  # from in here: who asks at once finds this function
    while not ctypes.PyDLL(None).pthread_mutex_lock(mutex):
        pass  # the second time it waits for itself
if sys.argv[2] in ("ends", "bare"):
    print("ready", flush=True)
    resort.disarm()
    print(path.exists(), flush=True)
    sys.stdin.read()
else:
    holds_the_lock()
"""


@contextmanager
def child(folder: Path, mode: str) -> Iterator[tuple[Any, str, Path]]:
    """A process that does what its mode says, the name of rank 0, which it is, and the file of its threads."""
    line = [sys.executable, "-c", PROGRAM, str(folder), mode, str(folder / "own.txt"), host_label()]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        name = f"rank0.{host_label()}.{process.pid}.0"
        try:
            yield process, name, folder / f"{name}.threads.txt"
        finally:
            process.kill()


@signalled
def test_the_stack_of_a_thread_that_keeps_the_lock_is_written(tmp_path: Path) -> None:
    with child(tmp_path, "holds") as (process, name, path):
        assert ask_by_signal(tmp_path, [name]) == [name]
        wait_until(lambda: "<module>" in path.read_text())  # its writer has finished
        assert [frame.function for frame in parse_stacks(path.read_text())[0]] == ["holds_the_lock", "<module>"]
        assert process.poll() is None


@signalled
def test_a_handler_of_the_script_stays(tmp_path: Path) -> None:
    with child(tmp_path, "registered") as (process, name, path):
        assert not path.exists() and ask_by_signal(tmp_path, [name]) == []
        os.kill(process.pid, NUMBER)
        wait_until(lambda: "holds_the_lock" in (tmp_path / "own.txt").read_text())


@signalled
@pytest.mark.parametrize("mode", ["ends", "bare"])
def test_a_process_without_a_handler_is_left_alone_and_a_signal_too_late_is_nothing(tmp_path: Path, mode: str) -> None:
    with child(tmp_path, mode) as (process, name, path):
        assert process.stdout.readline() == "False\n" and not handles(process.pid, NUMBER)
        path.touch()
        assert ask_by_signal(tmp_path, [name, "no name of ours"]) == []
        if mode == "ends":
            os.kill(process.pid, NUMBER)
        process.communicate("")
        assert process.returncode == 0
