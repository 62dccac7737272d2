"""The printed link in a real Chromium: it opens the pages, the token leaves the address, other sites get nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from ddprof.dashboard.pages.catalogue import PAGES
from ddprof.dashboard.runs.open_run import OpenRun
from tests.dashboard.browsing import turn_to, visit, wait_for

pytestmark = pytest.mark.browser

TOKEN = "a-secret-of-many-characters"


@pytest.fixture
def address(serve: Callable[..., str], straggler: OpenRun, chromium: Any) -> str:
    """A server that wants its token."""
    chromium.delete_all_cookies()
    return serve([straggler], token=TOKEN)


def test_the_printed_link_opens_every_page(chromium: Any, address: str) -> None:
    assert visit(chromium, address, f"/?token={TOKEN}") == []
    assert chromium.current_url == address + "/"
    assert chromium.execute_script("return document.cookie").count(TOKEN) == 0  # HttpOnly
    for page in PAGES[1:3]:
        assert turn_to(chromium, address, page.title) == []
    chromium.get(address + "/ranks")
    wait_for(chromium, "return document.querySelector('#content h1')")


def test_a_link_on_another_site_opens_the_dashboard(chromium: Any, address: str, serve: Callable[..., str]) -> None:
    elsewhere = serve([]).replace("127.0.0.1", "localhost")  # another site: its pages may lead here, and read nothing
    chromium.get(elsewhere + "/data/nothing")
    chromium.execute_script(f"location.href = '{address}/?token={TOKEN}'")
    wait_for(chromium, f"return location.href === '{address}/' && document.querySelector('#content h1')")


def test_without_the_token_there_is_one_line(chromium: Any, address: str) -> None:
    chromium.get(address + "/")
    assert "?token=" in chromium.find_element("tag name", "body").text


@pytest.fixture(scope="module")
def other_site() -> Iterator[int]:
    """Port of a server of somebody else's pages, on the same machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("mode", ["no-cors", "cors"])
def test_pages_of_another_origin_read_nothing(
    chromium: Any, address: str, other_site: int, name: str, mode: str
) -> None:
    visit(chromium, address, f"/?token={TOKEN}")
    chromium.get(f"http://{name}:{other_site}/nothing")  # on 127.0.0.1 only the port differs: the cookie comes along
    chromium.get_log("performance")
    asked = json.dumps(address + "/data/report.json")
    how = f'{{ mode: "{mode}", credentials: "include" }}'
    chromium.execute_async_script(f"fetch({asked}, {how}).then(arguments[0], arguments[0])")
    messages = [json.loads(entry["message"])["message"]["params"] for entry in chromium.get_log("performance")]
    assert 200 not in {
        m["response"]["status"] for m in messages if "report.json" in m.get("response", {}).get("url", "")
    }
