"""The thread that tells other hosts the time: where it listens, and what callers can ask of it."""

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from runs import wait_until

from ddprof.capture import clock
from ddprof.capture.clock import ClockSync
from ddprof.capture.identity import RankIdentity


def identity(rank: int, boot: str = "a") -> RankIdentity:
    return RankIdentity(rank, 2, 0, f"h{rank}", 1, 0, "c10d", boot)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Content of the job's store."""
    content: dict[str, str] = {}
    made = SimpleNamespace(set=content.__setitem__, get=content.get, check=lambda keys: content.keys() >= set(keys))
    monkeypatch.setattr(clock, "_store", lambda: made)
    for name in ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)
    return content


@pytest.fixture
def sync(store: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[ClockSync]:
    """Rank 0 of a job on two hosts, here on loopback."""
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    monkeypatch.setattr(clock, "_addresses", lambda name: ["127.0.0.1"])
    made = ClockSync("auto")
    made.announce(identity(0))
    yield made
    made.stop()


@pytest.fixture
def rank0(sync: ClockSync) -> tuple[str, int]:
    assert sync._server is not None
    host, port = sync._server.getsockname()[:2]
    return host, port


def listened() -> str | None:
    server = clock._listen()
    with server or contextlib.nullcontext():
        return server.getsockname()[0] if server else None


def serving() -> int:
    return sum(thread.name == "ddprof-clock" for thread in threading.enumerate())


@pytest.mark.parametrize("known", ["LOCAL_WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_ADDR=localhost"])
def test_on_one_host_nothing_listens(store: dict[str, str], monkeypatch: pytest.MonkeyPatch, known: str) -> None:
    monkeypatch.setenv(*known.split("="))
    for rank, sync in enumerate([ClockSync("auto") for _ in range(2)]):
        sync.announce(identity(rank))
        assert sync._server is None and [ping["offset_to_rank0_ns"] for ping in sync.pings()] == [0]
    assert store == {}


@pytest.mark.usefixtures("store")
def test_one_address_is_listened_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """MASTER_ADDR comes first; never another host's address, and loopback only as the last resort."""
    known = {"master": ["127.0.1.1", "192.0.2.7", "127.0.0.2"], socket.gethostname(): ["127.0.0.3"], "route": []}
    monkeypatch.setenv("MASTER_ADDR", "master")
    monkeypatch.setattr(clock, "_default_route", lambda: "route")
    monkeypatch.setattr(clock, "_addresses", lambda name: known[name])
    monkeypatch.setattr(clock, "_is_loopback", lambda address: address == "127.0.1.1")
    assert listened() == "127.0.0.2"
    monkeypatch.setattr(clock, "_is_loopback", lambda address: True)
    assert listened() == "127.0.1.1"
    monkeypatch.setattr(clock, "_addresses", lambda name: ["192.0.2.7"])
    monkeypatch.setattr(clock, "_is_loopback", lambda address: False)
    assert listened() is None


def test_no_address_is_no_name_of_all() -> None:
    assert clock._addresses("") == [] and clock._default_route() != "0.0.0.0"


def test_another_host_learns_its_offset(rank0: tuple[str, int]) -> None:
    sync = ClockSync("auto")
    sync.step_boundary(identity(1, boot="b"))
    assert sync._worker is not None
    sync._worker.join(300)
    (ping,) = sync.pings()
    assert ping["method"] == "ping"
    assert abs(ping["offset_to_rank0_ns"]) <= ping["rtt_ns"] / 2 + 1_000_000  # one clock: the true offset is 0


def test_callers_are_bounded(rank0: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """However many call, say nothing, or ask without end: so many threads, and so long."""
    monkeypatch.setattr(clock, "_CALL_S", 1.0)
    idle = [socket.create_connection(rank0, timeout=300) for _ in range(100)]
    most = 0
    with socket.create_connection(rank0, timeout=300) as honest:
        honest.sendall(b"?" * 24)
        answers = b""
        while part := honest.recv(1 << 16):
            answers += part
            most = max(most, serving())
    assert len(answers) == 24 * 8  # and then the connection was closed
    assert abs(struct.unpack_from("<q", answers)[0] - time.time_ns()) < 30e9 and most <= clock._CALLERS + 1
    wait_until(lambda: serving() <= 1)
    for caller in idle:
        caller.close()


def test_other_words_are_not_answered_and_nobody_answers_in_the_end(rank0: tuple[str, int], sync: ClockSync) -> None:
    with socket.create_connection(rank0, timeout=300) as caller:
        caller.sendall(b"GET / HTTP/1.1\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):  # closed with our words unread
            assert caller.recv(100) == b""
    sync.stop()
    with pytest.raises(OSError):
        socket.create_connection(rank0, timeout=300).close()
