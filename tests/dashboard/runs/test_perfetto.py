"""The hand-over to the Perfetto UI: what is sent, to whom, and what is offered where nobody answers."""

import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner

from ddprof.cli.serve import command
from ddprof.dashboard.app import create_app
from ddprof.dashboard.runs import perfetto
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.runs.perfetto import checked_ui, hand_over
from ddprof.dashboard.runs.served import Runs
from ddprof.dashboard.server.guard import Access
from ddprof.errors import UsageError
from tests.dashboard.browsing import Page, PageOf, Serve

# As the Perfetto UI does: it answers once its document is complete, keeps what it is sent, and listens on if asked to.
_PAGE = b"""<!DOCTYPE html><title>fake</title><link rel="icon" href="data:,"><script>
window.seen = { pings: 0, from: [], other: 0 };
function hear(event) {
  if (event.source !== window.opener) return;
  seen.from.push(event.origin);
  if (event.data === "PING") {
    seen.pings += 1;
    if (seen.pings > 2 && document.readyState === "complete") event.source.postMessage("PONG", "*");
  } else if (event.data.perfetto && event.data.perfetto.buffer) {
    seen.trace = event.data.perfetto;
    if (!seen.trace.keepApiOpen) window.removeEventListener("message", hear);
  } else if (event.data.perfetto) seen.span = event.data.perfetto;
  else seen.other += 1;
}
window.addEventListener("message", hear);
</script>"""


class _Fake(BaseHTTPRequestHandler):
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        """The page, whatever is asked for."""
        self.asked.append(self.path)
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(_PAGE)

    def log_message(self, *_: object) -> None:
        """Nothing on the terminal."""


@pytest.fixture(scope="module")
def address(serve: Serve, straggler: OpenRun) -> Iterator[str]:
    """A server that hands over to a page that does as the Perfetto UI."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Fake)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield serve([straggler], perfetto_ui=f"http://127.0.0.1:{server.server_port}/ui/?a=1")
    server.shutdown()
    server.server_close()


def _slices(packed: bytes, rank: int) -> list[dict[str, Any]]:
    events = json.loads(gzip.decompress(packed))["traceEvents"]
    return [event for event in events if event["ph"] == "X" and event["pid"] == rank + 1 and event["tid"] > 0]


def test_a_small_run_is_handed_over_whole_a_large_in_view(straggler: OpenRun, monkeypatch: pytest.MonkeyPatch) -> None:
    packed, holds = hand_over(straggler, {0, 1}, 0, 1000)
    for rank in (0, 1):
        assert len(_slices(packed, rank)) == straggler.job.ranks[rank].counts["events"]
    assert _slices(packed, 2) == [] and holds.endswith("of ranks 0, 1: the whole run")
    whole = _slices(hand_over(straggler, {1}, 0, 1)[0], 1)
    monkeypatch.setattr(perfetto, "WHOLE_EVENTS", 1)
    packed, holds = hand_over(straggler, {1}, 1_000_000, 3_000_000)
    inside = [e for e in whole if e["ts"] < 5_000 and e["ts"] + e["dur"] > -1_000]  # us
    assert 0 < len(inside) < len(whole) and _slices(packed, 1) == inside
    assert holds.endswith("of rank 1: the view and as much beside it")
    monkeypatch.setattr(perfetto, "MAX_EVENTS", 1)
    with pytest.raises(UsageError, match="open fewer ranks, or use ddprof export --ranks"):
        hand_over(straggler, {1}, 0, 1)
    with pytest.raises(UsageError, match="none of these ranks"):
        hand_over(straggler, {99}, 0, 1)


def test_the_route_sends_it(client: Any, straggler: OpenRun) -> None:
    answer = client.get("/data/trace.json.gz?ranks=1&lo=0&hi=1000")
    assert answer.status_code == 200 and answer.headers["X-Ddprof-Holds"].endswith("rank 1: the whole run")
    assert "ddprof-trace.json.gz" in answer.headers["Content-Disposition"] and _slices(answer.data, 1)
    assert client.get("/data/trace.json.gz?ranks=1&lo=5&hi=5").status_code == 400
    saved = create_app(Runs((), [OpenRun(straggler.report)]), Access()).server.test_client()
    assert saved.get("/data/trace.json.gz?lo=0&hi=1000").status_code == 400


def test_only_addresses_of_pages_are_taken() -> None:
    for address in ("https://ui.perfetto.dev", "http://localhost:10000", "http://[::1]:1/x?y"):
        assert checked_ui(address) == address
    others = ("javascript:alert(1)", "data:text/html,x", "localhost:10000", "//x", "http://", "http://a@b/", "x y")
    for address in others:
        with pytest.raises(UsageError, match="--perfetto-ui"):
            checked_ui(address)
    failed = CliRunner().invoke(command, ["nowhere", "--perfetto-ui", "file:///etc/passwd"])
    assert failed.exit_code != 0 and "--perfetto-ui: want an address" in str(failed.exception)


@pytest.fixture
def home(chromium: Any) -> Iterator[str]:
    """The tab that is open; others are closed afterwards."""
    _Fake.asked.clear()
    first = chromium.current_window_handle
    yield first
    for handle in chromium.window_handles:
        if handle != first:
            chromium.switch_to.window(handle)
            chromium.close()
    chromium.switch_to.window(first)


def test_one_click_opens_the_same_span(page: Page, home: str, straggler: OpenRun) -> None:
    assert page.visit("/timeline") == [] and _Fake.asked == []  # nobody else is asked before the click
    page.js("const t = ddprof.timeline; t.open = new Set([1, 2]); t.layout(); t.zoom(0.25)")
    span = page.view
    page.press("Perfetto")
    page.wait("return ddprof.timeline.root.dataset.perfetto === 'sent'")
    assert "nothing was uploaded" in page.said and "ranks 1, 2: the whole run" in page.said
    page.browser.switch_to.window(next(handle for handle in page.browser.window_handles if handle != home))
    page.wait("return window.seen.span")
    read = "const { buffer, ...rest } = seen.trace; return { ...seen, trace: rest, bytes: [...new Uint8Array(buffer)] }"
    seen = page.js(read)
    assert set(seen["from"]) == {page.address} and seen["other"] == 0
    assert [seen["span"]["timeStart"] * 1e9, seen["span"]["timeEnd"] * 1e9] == pytest.approx(span, abs=1)
    sent = bytes(seen["bytes"])
    handed, _ = hand_over(straggler, {1, 2}, round(span[0]), round(span[1]))
    assert gzip.decompress(sent) == gzip.decompress(handed)
    assert len(_slices(sent, 1)) == straggler.job.ranks[1].counts["events"] and _slices(sent, 0) == []
    assert seen["trace"]["fileName"] == "ddprof-trace.json.gz" and seen["trace"]["title"].startswith("ddprof ")
    assert _Fake.asked == ["/ui/?a=1"]  # it was asked for its page alone


def test_no_answer_and_an_offer(page_of: PageOf, home: str, address: str, straggler: OpenRun) -> None:
    page = page_of(straggler, perfetto_ui=address + "/data/nothing")  # a page that does not listen
    page.visit("/timeline")
    page.js("ddprof.perfettoPatienceMs = 1")
    page.press("Perfetto")
    page.browser.switch_to.window(home)
    page.wait("return ddprof.timeline.root.dataset.perfetto === 'offered'")
    words = page.css(".tl-panel").text
    assert "No answer from http://127.0.0.1" in words and "ddprof export RUN -o ddprof-trace.json.gz" in words
    fetched = "return fetch(arguments[0].href).then(async (a) => [a.status, (await a.arrayBuffer()).byteLength])"
    status, size = page.js(fetched, page.css(".tl-panel a[download]"))
    assert status == 200 and size > 1000


def test_a_browser_without_tabs_is_told(timeline: Page, home: str) -> None:
    timeline.js("window.open = () => null")
    timeline.press("Perfetto")
    assert "allow this page to, and press again" in timeline.css(".tl-panel").text and _Fake.asked == []
