"""A real server under malformed requests, several at a time: no 500, memory stays flat, and it goes on serving."""

import json
import random
import re
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import psutil
import pytest

from ddprof.dashboard.pages.catalogue import PAGES
from tests.dashboard.server.test_server import drawn

SEED, AT_ONCE, PATIENCE_S = 15, 8, 300.0
# Of the allocator, after the pages were drawn once: 5,000 requests added 4 to 12 MB on Linux x86-64, 20,000 no more.
MAX_GROWN_BYTES = 48 * 2**20

# fmt: off
ROUTES = (
    "lanes", "tile", "slice", "statistics", "search", "overview", "places", "waits", "path", "trace.json.gz",
    "report.json", "table.csv", "nothing",
)
NAMES = ("run", "expanded", "lanes", "lo", "hi", "bins", "row", "text", "ranks", "page", "id", "steps", "against")
VALUES = (
    "", "0", "-1", "3", "0-3", "0-", "-", ",", ",,,", "1e9", "1.5", "nan", "inf", "NaN", "true", "null", "x", "0x10",
    "9" * 20, "9" * 5_000, "-" + "9" * 18, "0-999999999", ",".join(["0-99999"] * 900), ",".join(map(str, range(5_000))),
    "\x00", "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"), "٣", "²", "a" * 30_000, "%", "<script>",
    "../../../etc/passwd", "ranks", "overview", "lateness", "/", "\x1b[31m", "\u202e", "1;2", "1 2", "'", '"', "{}",
    "[]",
)
PATHS = (
    "/", "//", "//x", "//[", "http://[::1", "http://elsewhere/", "*", "/%00", "/assets/%00", "/assets/../../x",
    "/static/%2e", "/_dash-component-suites/dash/deps/react@18.v9_m0.js", "/_dash-component-suites/os/x.js",
    "/_dash-layout?x=%ff", "/_dash-component-suites/dash/dash.py", "/_dash-component-suites/plotly/%2e%2e/x",
    "/_dash-component-suites/dash/a.map", "/_dash-dependencies", "/_reload-hash", "/_favicon.ico", "/data", "/data/",
    "/data/upload", "/data/dashboard.js?%ff", "/\xff\xfe", "/" + "a/" * 20_000, "/" + "a" * 70_000,
    "/?" + "&".join(f"a{i}=1" for i in range(3_000)), "/;x?#y", "/?=&=", "/ranks?ranks=999999", "/ranks?steps=999999",
    "/timeline?from=nan&to=inf", "/what-if?x=1e999", "/compare?against=99",
)
METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "TRACE", "CONNECT", "PATCH", "get",
           "X" * 3_000, "G\x00T", "\xff", "")
HEADERS = (
    "Range: bytes=5-1", "Range: bytes=" + ",".join(["0-"] * 3_000), "Accept-Encoding: gzip;q=nan",
    "Expect: 100-continue", "Content-Length: -5", "Content-Length: abc", "Content-Length: 99999999999999",
    "Transfer-Encoding: chunked", "Host: elsewhere.example", "Host: [::1", "Host:", "Host: \xff", "Origin: null",
    "Origin: http://[", "Cookie: a=\xff; ;;=;", "Authorization: Bearer \xff", "Authorization: Basic ",
    "X: " + "y" * 60_000, "X: " + "y" * 70_000, "no colon", ": empty", "Content-Type: text/plain",
    "Content-Type: application/json; charset=x", "If-None-Match: \xff", "If-Modified-Since: x",
    "\r\n".join(f"H{i}: 1" for i in range(90)), "\r\n".join(f"H{i}: 1" for i in range(200)),
    "Sec-Fetch-Site: cross-site",
)
ODD: tuple[object, ...] = (
    None, 0, -1, 2**70, 1.5, float("nan"), float("inf"), "", "x", "\ud800", "a" * 40_000, [], {}, [[]], {"x": {}}, True,
    [None] * 200, {"wide": "\x00"}, "?ranks=9-1", "?ranks=" + "0-99999," * 200, "?" + "a=1&" * 2_000, "/nowhere", "//x",
)
CALLS: tuple[tuple[str, object, tuple[str, ...], tuple[str, ...]], ...] = (
    ("version.data", "version.data", ("clock.n_intervals",), ("version.data",)),
    ("..top.children...navigation.children...content.children..",
     ["top.children", "navigation.children", "content.children"],
     ("address.pathname", "address.search", "version.data"), ()),
    ("address.search", "address.search",
     ("filter-apply.n_clicks", "filter-ranks.n_submit", "filter-steps.n_submit"),
     ("filter-ranks.value", "filter-steps.value", "address.search")),
    ("what-if-result.children", "what-if-result.children", ("what-if-values.data",), ("address.search",)),
    ("live.children", "live.children", ("live-clock.n_intervals",), ("address.search",)),
    ("timeline-mounted.children", "timeline-mounted.children", ("timeline-config.data",), ()),
)
GOOD = {"address.pathname": "/", "address.search": "", "version.data": 1, "what-if-values.data": {}}

FORM = "multipart/form-data"
PART = b'--b\r\nContent-Disposition: form-data; name="files"; filename="'
FILE_NAMES = ('x.json"', '../x.json"', '\x00"', 'a" ; filename="b"', '"', "x" * 5_000 + '"')
CONTENTS = (
    b"", b"{}", b"PK\x03\x04" + b"\0" * 50, b"\x1f\x8b" + b"\0" * 9, b"[" * 50_000, b'{"traceEvents":[1,2',
    b'{"schema": "ddprof.report/1", "run": NaN}', b'{"traceEvents": [{"ph": "X", "ts": 1e999}]}',
)
# fmt: on


class Malformed:
    """An endless supply of bad requests for a server; `headers` come with all of them (who asks)."""

    def __init__(self, seed: int, headers: str) -> None:
        self._random, self._headers = random.Random(seed), headers
        self._pick = self._random.choice

    def next(self) -> bytes:
        kinds: list[Callable[[], bytes]] = [self._data, self._data, self._line, self._header, self._call, self._call]
        return self._pick((*kinds, self._upload, self._noise))()

    def _get(self, target: str, method: str = "GET", extra: str = "", body: bytes = b"") -> bytes:
        length = f"Content-Length: {len(body)}\r\n" if body else ""
        return f"{method} {target} HTTP/1.1\r\n{self._headers}{extra}{length}\r\n".encode("latin-1", "replace") + body

    def _data(self) -> bytes:
        chosen, pick = self._random.sample(NAMES, self._random.randint(0, 6)), self._pick
        query = "&".join(f"{name}={quote(pick(VALUES), safe=pick(('', ',-')))}" for name in chosen)
        return self._get(f"/data/{pick(ROUTES)}?{query}"[:60_000])

    def _line(self) -> bytes:
        target, method = self._pick(PATHS), self._pick(METHODS)
        version = self._pick(("HTTP/1.1", "HTTP/1.0", "HTTP/9.9", "HTTP/x", "", "HTTP/2.0"))
        return f"{method} {target} {version}\r\n{self._headers}\r\n".encode("latin-1", "replace")

    def _header(self) -> bytes:
        target = self._pick((*PATHS[:1], "/data/report.json", "/_dash-layout"))
        some = "".join(f"{line}\r\n" for line in self._random.sample(HEADERS, self._random.randint(1, 3)))
        body = self._pick((b"", b"x", b"zz\r\nx", b"-1\r\n\r\n", b"ffffffffffff\r\n"))
        return self._get(target, self._pick(("GET", "POST", "HEAD")), some) + body

    def _call(self) -> bytes:
        output, outputs, inputs, state = self._pick(CALLS)
        listed = [_split(name) for name in outputs] if isinstance(outputs, list) else _split(str(outputs))
        body: dict[str, object] = {"output": output, "outputs": listed, "changedPropIds": [inputs[0]]}
        body["inputs"] = [self._property(name) for name in inputs]
        body["state"] = [self._property(name) for name in state]
        for key in self._random.sample(sorted(body), self._pick((0, 0, 1, 2))):
            body[key] = self._pick(ODD)
        text = json.dumps(self._pick((body, body, body, body, self._pick(ODD)))).encode()
        deep = self._pick((b"[", b'{"output":')) * self._pick((1_000, 100_000, 400_000))
        text = self._pick((text, text, text, text, text[: len(text) // 2], b"\xff\xfe" + text, deep[:999_000]))
        kind = self._pick((*["application/json"] * 3, "text/plain", "x/y; charset=\xff"))
        return self._get("/_dash-update-component", "POST", f"Content-Type: {kind}\r\n", text)

    def _property(self, name: str) -> dict[str, object]:
        return {**_split(name), "value": GOOD.get(name) if self._random.random() < 0.5 else self._pick(ODD)}

    def _upload(self) -> bytes:
        part = PART + self._pick(FILE_NAMES).encode("latin-1") + b"\r\n\r\n" + self._pick(CONTENTS)
        body = self._pick((part + b"\r\n--b--\r\n", part, b"", b"--b\r\n" * 3_000, b"--b--"))
        kind = self._pick((FORM + "; boundary=b", FORM, "text/plain", FORM + "; boundary=" + "b" * 5_000))
        header = self._pick(("X-Ddprof-Upload: 1\r\n", ""))
        return self._get("/data/upload", "POST", f"Content-Type: {kind}\r\n{header}", body)

    def _noise(self) -> bytes:
        return self._random.randbytes(self._pick((1, 100, 5_000))) + b"\r\n\r\n"


def _split(name: str) -> dict[str, object]:
    part, _, prop = name.partition(".")
    return {"id": part, "property": prop}


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
