"""Requests to a running job: each is obeyed once, also where several come between two polls."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ddprof.capture.files import control
from ddprof.capture.files.control import LESS, WHERE, ControlReader, Request, send
from ddprof.capture.files.layout import CONTROL

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
