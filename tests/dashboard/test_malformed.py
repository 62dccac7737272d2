"""A real server under malformed requests, several at a time: no 500, memory stays flat, and it goes on serving."""

import json
import re
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from ddprof.dashboard.pages.catalogue import PAGES
from tests.dashboard.malformed import Malformed
from tests.dashboard.server.test_server import drawn

SEED = 15
AT_ONCE = 8
PATIENCE_S = 300.0
# Of the allocator, after the pages were drawn once: 5,000 requests added 4 to 12 MB on Linux x86-64, 20,000 no more.
MAX_GROWN_BYTES = 48 * 2**20


@dataclass
class Served:
    """A server of its own process, what admits a request to it, and what it wrote on its terminal."""

    process: subprocess.Popen[str]
    port: int
    token: str
    said: list[str]

    @property
    def headers(self) -> str:
        return f"Host: 127.0.0.1:{self.port}\r\nAuthorization: Bearer {self.token}\r\n"

    def ask(self, request: bytes) -> bytes:
        """The whole answer; b"" where the connection was closed instead."""
        answer = b""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S) as connection:
                connection.sendall(request)
                with suppress(OSError):  # the server has closed it already
                    connection.shutdown(socket.SHUT_WR)
                while part := connection.recv(65_536):
                    answer += part
        except ConnectionError:
            pass
        return answer.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")

    def get(self, path: str) -> bytes:
        return self.ask(f"GET {path} HTTP/1.1\r\n{self.headers}\r\n".encode())

    def draw(self, path: str) -> bytes:
        text = json.dumps(drawn("", path)).encode()
        head = f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n"
        return self.ask(f"POST /_dash-update-component HTTP/1.1\r\n{self.headers}{head}\r\n".encode() + text)


@pytest.fixture(scope="module")
def served(straggler_traces: Path) -> Iterator[Served]:
    """`ddprof serve`, opened by the link that it prints."""
    command = ["-m", "ddprof.cli.main", "serve", str(straggler_traces), "--port", "0", "--max-upload", "1"]
    process = subprocess.Popen([sys.executable, *command], stderr=subprocess.PIPE, text=True)
    said: list[str] = []
    assert process.stderr is not None
    for line in process.stderr:
        said.append(line)
        if link := re.search(r"open http://127\.0\.0\.1:(\d+)/\?token=(\S+)", line):
            break
    else:
        raise AssertionError("".join(said))
    reader = threading.Thread(target=lambda: said.extend(process.stderr or ()), daemon=True)
    reader.start()
    yield Served(process, int(link[1]), link[2], said)
    process.terminate()
    process.wait(PATIENCE_S)
    reader.join(PATIENCE_S)


def statuses(served: Served, seed: int, count: int) -> Counter[str]:
    """Number of answers by status to so many malformed requests; "" without one (closed, HTTP/0.9)."""
    supply = Malformed(seed, served.headers)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = pool.map(served.ask, (supply.next() for _ in range(count)))
        heads = (re.match(rb"(?:HTTP/1\.[01] )?(\d{3})\b", answer) for answer in answers)
        return Counter(head[1].decode() if head else "" for head in heads)


def is_sound(served: Served) -> bool:
    """True where sound requests are answered as before, and the terminal is empty."""
    shown = served.get("/data/report.json").startswith(b"HTTP/1.1 200")
    drawn = all(served.draw(page.path).startswith(b"HTTP/1.1 200") for page in PAGES)
    return shown and drawn and not any("Traceback" in line for line in served.said)


def test_malformed_requests_are_refused_and_the_server_goes_on(served: Served) -> None:
    assert is_sound(served)
    counted = statuses(served, SEED, 300)
    assert not any(status.startswith("5") for status in counted), counted
    assert is_sound(served)


@pytest.mark.slow
def test_five_thousand_malformed_requests_leave_memory_flat(served: Served) -> None:
    statuses(served, SEED + 1, 500)  # what is loaded once: packages, drawings, the allocator's arenas
    assert is_sound(served)
    memory = psutil.Process(served.process.pid).memory_info
    before = memory().rss
    counted = statuses(served, SEED + 2, 5_000)
    assert not any(status.startswith("5") for status in counted), counted
    assert is_sound(served)
    after = memory().rss
    print(f"{counted.total()} requests: {dict(counted)}; memory {before / 2**20:.0f} to {after / 2**20:.0f} MiB")
    assert after - before < MAX_GROWN_BYTES
