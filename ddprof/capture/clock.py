"""The offset of this host's clock from rank 0's, by pings over a socket of ddprof's own: no process group is used.

Ranks that run under the same kernel share one clock, so their offset is 0. Between hosts, local rank 0 of each host
asks a thread of rank 0 for its time 24 times and keeps the answer with the shortest round trip; half the round trip
bounds the error. The job's store is used once, after `init_process_group`, for one key: rank 0's address.
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
_ROUNDS = 24
_TIMEOUT_S = 2.0
_STAMP = struct.Struct("<q")


class ClockSync:
    """`mode`: "auto", "always" (ping also within a host) or "off"."""

    def __init__(self, mode: str) -> None:
        self._mode = mode
        self._pings: list[dict[str, Any]] = []
        self._server: socket.socket | None = None
        self._address: tuple[str, int] | None = None
        self.settled = mode == "off"  # whether step boundaries have nothing left to do here
        self._worker: threading.Thread | None = None

    def announce(self, identity: RankIdentity) -> None:
        """Rank 0 of a job on several hosts begins to answer; ranks known to be on its host book an offset of 0."""
        if identity.source != "c10d" or identity.world_size == 1 or _one_host(identity):
            self._same_clock("init")
            self.settled = self.settled or self._mode != "always" or identity.source != "c10d"
        if identity.rank != 0 or self.settled:
            return
        self.settled = True
        self._server = socket.create_server(("", 0))
        threading.Thread(target=self._answer, args=(self._server,), name="ddprof-clock", daemon=True).start()
        hosts = [os.environ.get("MASTER_ADDR", ""), socket.gethostname()]
        content = {"hosts": [h for h in hosts if h], "port": self._server.getsockname()[1], "boot_id": identity.boot_id}
        _store().set(_STORE_KEY, json.dumps(content))
        self._same_clock("init")

    def step_boundary(self, identity: RankIdentity | None) -> None:
        """Look up rank 0's address, once, after the first step: every rank has left `init_process_group` by then."""
        if self.settled or identity is None or identity.source != "c10d":
            return
        self.settled = True
        store = _store()
        if not store.check([_STORE_KEY]):
            return
        content = json.loads(store.get(_STORE_KEY))
        if content["boot_id"] is not None and content["boot_id"] == identity.boot_id and self._mode != "always":
            self._same_clock("init")
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
        """What has been measured: rank 0's time is this host's time + `offset_to_rank0_ns`."""
        return list(self._pings)

    def stop(self) -> None:
        """Stop answering, and let a measurement under way end."""
        if self._worker is not None:
            self._worker.join(_TIMEOUT_S)
        server, self._server = self._server, None
        if server is not None:
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)  # closing alone does not wake a thread in accept()
            server.close()

    def _same_clock(self, tag: str) -> None:
        self._pings.append(
            {"tag": tag, "at_ns": time.time_ns(), "rtt_ns": 0, "offset_to_rank0_ns": 0, "method": "same host"}
        )

    def _connect(self, content: dict[str, Any]) -> None:
        for host in content["hosts"]:
            self._address = (host, content["port"])
            if self._ping("init"):
                return
        self._address = None  # a firewall, or no route: the analysis falls back to the ends of collectives

    def _ping(self, tag: str) -> bool:
        """Ask `_ROUNDS` times; keep the shortest round trip."""
        best: tuple[int, int, int] | None = None
        try:
            with socket.create_connection(self._address or ("", 0), timeout=_TIMEOUT_S) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for _ in range(_ROUNDS):
                    sent = time.time_ns()
                    connection.sendall(b"?")
                    answer = _read(connection, _STAMP.size)
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

    def _answer(self, server: socket.socket) -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return  # closed
            threading.Thread(target=_serve, args=(connection,), name="ddprof-clock", daemon=True).start()


def _serve(connection: socket.socket) -> None:
    with connection:
        try:
            connection.settimeout(_TIMEOUT_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while connection.recv(1):
                connection.sendall(_STAMP.pack(time.time_ns()))
        except OSError:
            return


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            break
        data += part
    return data


def _one_host(identity: RankIdentity) -> bool:
    local_size = os.environ.get("LOCAL_WORLD_SIZE") or os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE") or ""
    return local_size.isdigit() and int(local_size) == identity.world_size


def _store() -> Any:
    return sys.modules["torch.distributed.distributed_c10d"]._get_default_store()
