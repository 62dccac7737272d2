"""The offset of this host's clock from rank 0's, by pings over a socket of ddprof's own: no process group is used.

Ranks that run under the same kernel share one clock, so their offset is 0. Between hosts, local rank 0 of each host
asks a thread of rank 0 for its time 24 times and keeps the answer with the shortest round trip; half the round trip
bounds the error. The job's store is used once, after `init_process_group`, for one key: rank 0's address.

Nothing listens where all ranks are known to be on one host. Else rank 0 listens on one address, and only while the job
runs: that of MASTER_ADDR, or else of its host's name, or of the default route; where others cannot reach it, the
analysis takes the ends of collectives instead. Anyone who reaches the port can ask for the time: one byte per question,
two dozen questions per caller within seconds, 32 callers at once. Nothing about callers is kept.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import sys
import threading
import time
from typing import Any

from ddprof.capture.identity import RankIdentity

_STORE_KEY = "ddprof/clock"
_ROUNDS = 24  # round trips, of which the shortest counts
_TIMEOUT_S = 2.0  # to connect
_CALL_S = 5.0  # for all questions of a caller: 24 round trips between continents
_BACKLOG = 1024  # hosts that may ask at the same moment, after the first step; the kernel may allow fewer
_CALLERS = 32  # at once, each with a thread; further ones wait in the queue of the socket
_STAMP = struct.Struct("<q")


class ClockSync:
    """The offset of this host's clock. `mode`: "auto", "always" (ping also within a host) or "off"."""

    def __init__(self, mode: str) -> None:
        self._mode = mode
        self._pings: list[dict[str, Any]] = []
        self._server: socket.socket | None = None
        self._address: tuple[str, int] | None = None
        self.settled = mode == "off"  # whether step boundaries have nothing left to do here
        self._worker: threading.Thread | None = None

    def announce(self, identity: RankIdentity) -> None:
        """Start answering on rank 0 of a job on several hosts; ranks known to be on its host book an offset of 0."""
        if identity.rank_source != "c10d" or identity.world_size == 1 or _one_host(identity):
            self._same_clock()
            self.settled = self.settled or self._mode != "always" or identity.rank_source != "c10d"
        if identity.rank != 0 or self.settled:
            return
        self.settled = True
        self._server = _listen()
        if self._server is not None:
            threading.Thread(target=_answer, args=(self._server,), name="ddprof-clock", daemon=True).start()
            host, port = self._server.getsockname()[:2]
            content = {"hosts": [host, *_own_names()], "port": port, "boot_id": identity.boot_id}
            _store().set(_STORE_KEY, json.dumps(content))
        self._same_clock()

    def step_boundary(self, identity: RankIdentity | None) -> None:
        """Look up rank 0's address once, after the first step, when every rank has left `init_process_group`."""
        if self.settled or identity is None or identity.rank_source != "c10d":
            return
        self.settled = True
        store = _store()
        if not store.check([_STORE_KEY]):
            return
        content = json.loads(store.get(_STORE_KEY))
        if content["boot_id"] is not None and content["boot_id"] == identity.boot_id and self._mode != "always":
            self._same_clock()
        elif identity.local_rank in (0, None) or self._mode == "always":
            self._worker = threading.Thread(target=self._connect, args=(content,), name="ddprof-clock", daemon=True)
            self._worker.start()

    def ping_again(self, tag: str) -> None:
        """Measure once more, beside the training: two measurements give the drift."""
        if self._address is None or (self._worker is not None and self._worker.is_alive()):
            return
        self._worker = threading.Thread(target=self._ping, args=(tag,), name="ddprof-clock", daemon=True)
        self._worker.start()

    def pings(self) -> list[dict[str, Any]]:
        """Measured offsets: rank 0's time is this host's time + `offset_to_rank0_ns`."""
        return list(self._pings)

    def stop(self) -> None:
        """Stop answering, and let a running measurement end."""
        if self._worker is not None:
            self._worker.join(_TIMEOUT_S)
        server, self._server = self._server, None
        if server is not None:
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)  # closing alone does not wake a thread in accept()
            server.close()

    def _same_clock(self) -> None:
        self._pings.append(
            {"tag": "init", "at_ns": time.time_ns(), "rtt_ns": 0, "offset_to_rank0_ns": 0, "method": "same host"}
        )

    def _connect(self, content: dict[str, Any]) -> None:
        for host in content["hosts"]:
            self._address = (host, content["port"])
            if self._ping("init"):
                return
        self._address = None  # a firewall, or no route: the analysis falls back to the ends of collectives

    def _ping(self, tag: str) -> bool:
        """Ping `_ROUNDS` times; keep the shortest round trip."""
        best: tuple[int, int, int] | None = None
        try:
            with (
                socket.create_connection(self._address or ("", 0), timeout=_TIMEOUT_S) as connection,
                connection.makefile("rb") as answers,
            ):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for _ in range(_ROUNDS):
                    sent = time.time_ns()
                    connection.sendall(b"?")
                    answer = answers.read(_STAMP.size)
                    received = time.time_ns()
                    (theirs,) = _STAMP.unpack(answer)
                    middle = (sent + received) // 2
                    if best is None or received - sent < best[0]:
                        best = (received - sent, theirs - middle, middle)
        except (OSError, struct.error):
            return False
        if best is None:
            return False
        self._pings.append(
            {"tag": tag, "at_ns": best[2], "rtt_ns": best[0], "offset_to_rank0_ns": best[1], "method": "ping"}
        )
        return True


def _own_names() -> list[str]:
    """Names by which other hosts may know rank 0's host."""
    return [name for name in (os.environ.get("MASTER_ADDR", ""), socket.gethostname()) if name]


def _listen() -> socket.socket | None:
    """A socket on this host's first address that others may reach, else on loopback; None without any network."""
    loopback = []
    for name in (*_own_names(), _default_route()):
        for address in _addresses(name):
            if _is_loopback(address):
                loopback.append(address)
            elif (server := _bound(address)) is not None:
                return server
    return next(filter(None, map(_bound, loopback)), None)


def _default_route() -> str:
    """The address of this host on its default route, "" without one. Nothing is sent."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # reserved for documentation (RFC 5737)
        return str(probe.getsockname()[0])
    return ""


def _addresses(name: str) -> list[str]:
    with contextlib.suppress(OSError, UnicodeError):
        return list(dict.fromkeys(str(info[4][0]) for info in socket.getaddrinfo(name, 0) if name))
    return []


def _bound(address: str) -> socket.socket | None:
    """A socket bound to the address; None where it is another host's, or of a disabled kind."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with contextlib.suppress(OSError):
        return socket.create_server((address, 0), family=family, backlog=_BACKLOG)
    return None


def _is_loopback(name: str) -> bool:
    """True where a host's name or address is known to be the host itself."""
    return name.startswith("127.") or name in ("localhost", "::1")


def _answer(server: socket.socket) -> None:
    """Accept callers until the socket is closed, at most `_CALLERS` at a time."""
    places = threading.BoundedSemaphore(_CALLERS)
    while True:
        places.acquire()
        try:
            connection, _ = server.accept()
        except OSError:
            return  # closed
        threading.Thread(target=_serve, args=(connection, places), name="ddprof-clock", daemon=True).start()


def _serve(connection: socket.socket, places: threading.BoundedSemaphore) -> None:
    until = time.monotonic() + _CALL_S
    try:
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for _ in range(_ROUNDS):
                connection.settimeout(max(until - time.monotonic(), 0.001))
                if connection.recv(1) != b"?":
                    return
                connection.sendall(_STAMP.pack(time.time_ns()))
    except OSError:
        return
    finally:
        places.release()


def _one_host(identity: RankIdentity) -> bool:
    """True where the launcher says one host, or is silent and ranks meet on loopback (mp.spawn)."""
    local_size = os.environ.get("LOCAL_WORLD_SIZE") or os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE") or ""
    if not local_size.isdigit():
        return _is_loopback(os.environ.get("MASTER_ADDR", ""))
    return int(local_size) == identity.world_size


def _store() -> Any:
    return sys.modules["torch.distributed.distributed_c10d"]._get_default_store()
