"""Who is answered: by which names, with which token, from which pages; and what every answer forbids the browser."""

import json
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from ddprof.dashboard.app import create_app
from ddprof.dashboard.pages.catalogue import PAGES
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.runs.served import Runs
from ddprof.dashboard.server.guard import Access, is_loopback
from tests.dashboard.browsing import Page, Serve

TOKEN, REPORT = "a-secret-of-many-characters", "/data/report.json"
ANSWERED = ["/", REPORT, "/data/nothing", "/nowhere", "/_dash-layout", "/data/tile", "/?token=wrong"]
HOSTS = [
    *((Access(), host, 200) for host in ("127.0.0.1:8050", "localhost:8050", "[::1]:8050")),
    *((Access(), f"{name}.elsewhere.example", 403) for name in ("127.0.0.1", "localhost")),
    *((Access(), host, 403) for host in ("10.0.0.5:8050", "")),
    *((Access(names=("proxy.example",)), "Proxy.Example:80", 200), (Access(TOKEN), "elsewhere.example", 403)),
    *((Access(TOKEN, "0.0.0.0"), "elsewhere.example", 403), (Access(TOKEN, "0.0.0.0"), "10.0.0.5:8050", 200)),
    (Access(TOKEN, "node7.example"), "node7.example", 200),
]
LED = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}  # by a link
FOREIGN = [
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"},
    {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"},  # another port
    LED,
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
    *({"Origin": origin} for origin in ("http://elsewhere.example", "http://localhost:3000", "null", "http://[")),
]


@pytest.fixture
def ask(straggler: OpenRun):
    """`ask(access)` -> a client of an application that lets in whom `access` says."""
    return lambda access: create_app(Runs([], [straggler]), access).server.test_client()


@pytest.mark.parametrize(("access", "host", "status"), HOSTS)
def test_only_names_of_this_server_are_answered(ask, access: Access, host: str, status: int) -> None:
    assert ask(access).get(REPORT, headers={"Host": host, "Authorization": f"Bearer {TOKEN}"}).status_code == status


@pytest.mark.parametrize("headers", FOREIGN)
@pytest.mark.parametrize("access", [Access(), Access(TOKEN)])
def test_pages_of_other_sites_get_no_data(ask, access: Access, headers: dict[str, str]) -> None:
    client = ask(access)
    client.get(f"/?token={TOKEN}")
    for path in (REPORT, "/data/lanes", "/data/table.csv", "/_dash-layout"):
        assert client.get(path, headers=headers).status_code == 403
    for path in ("/_dash-update-component", "/data/upload"):
        assert client.post(path, json={}, headers=headers).status_code == 403


def test_our_page_and_the_address_bar_are_answered_and_the_link_works_from_anywhere(ask) -> None:
    client = ask(Access())
    for headers in ({}, {"Sec-Fetch-Site": "none"}, {"Sec-Fetch-Site": "same-origin"}, {"Origin": "http://localhost"}):
        assert client.get(REPORT, headers=headers).status_code == 200
    assert client.get("/ranks", headers=LED).status_code == 200
    assert client.post("/ranks", headers=LED).status_code == 403
    client = ask(Access(TOKEN))
    page = client.get(f"/ranks?ranks=0-1&token={TOKEN}", headers=LED)
    # A redirect would not carry the strict cookie that it sets: the page leads on.
    assert page.status_code == 200 and 'content="0;url=/ranks?ranks=0-1"' in page.text and TOKEN not in page.text
    moved = ask(Access(TOKEN)).get(f"/ranks?ranks=0-1&token={TOKEN}")
    assert moved.status_code == 302 and moved.headers["Location"] == "/ranks?ranks=0-1"
    for cookie in (page.headers["Set-Cookie"], moved.headers["Set-Cookie"]):
        assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
    assert client.get(REPORT).status_code == 200


@pytest.mark.parametrize("path", ["//elsewhere.example", "/\\elsewhere.example", '/"><script>alert(1)</script>'])
def test_the_link_leads_nowhere_else(ask, path: str) -> None:
    for site in ("none", "cross-site"):
        answer = ask(Access(TOKEN)).get(path, query_string={"token": TOKEN}, headers={"Sec-Fetch-Site": site})
        assert not answer.headers.get("Location", "/x").startswith(("//", "/\\", "http"))
        assert "url=//" not in answer.text and "<script" not in answer.text


def test_a_token_is_demanded_on_every_route_and_taken_from_scripts(ask) -> None:
    client = ask(Access(TOKEN))
    for path in ("/", REPORT, "/_dash-layout", "/data/dashboard.js"):
        assert [client.get(path + query).status_code for query in ("", "?token=wrong", "?token=ÿ")] == [401] * 3
    assert client.get(REPORT, headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
    for value in (f"Basic {TOKEN}", TOKEN, "Bearer ", "Bearer x", "Bearer \xff"):
        assert client.get(REPORT, headers={"Authorization": value}).status_code == 401
    assert client.post(f"/data/upload?token={TOKEN}").status_code == 401 == client.get("/?token=").status_code


def test_the_page_asks_nobody_else_and_refusals_are_one_line_of_text(ask) -> None:
    text = ask(Access()).get("/").text
    assert 'lang="en"' in text and "http://" not in text and "https://" not in text
    client = ask(Access(TOKEN))
    many = "/?" + "&".join(f"a{i}=1" for i in range(100))
    answers = [client.get("/"), client.get("/", headers={"Host": "x.example"}), client.put("/"), client.get(many)]
    assert [answer.status_code for answer in answers] == [401, 403, 401, 400]
    assert all(a.mimetype == "text/plain" and a.text and "\n" not in a.text for a in answers)


def test_is_loopback_and_dashboards_of_one_host_keep_their_own_cookies() -> None:
    assert all(is_loopback(host) for host in ("127.0.0.1", "127.1.2.3", "::1", "localhost"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "example.org", ""))
    assert len({Access(TOKEN).cookie, Access(TOKEN + "2").cookie}) == 2 and TOKEN not in Access(TOKEN).cookie


@pytest.mark.parametrize("path", ANSWERED)
@pytest.mark.parametrize("host", ["localhost", "elsewhere.example"])
def test_every_answer_is_sealed(ask, path: str, host: str) -> None:
    headers = ask(Access()).get(path, headers={"Host": host}).headers
    policy = dict(part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == policy["connect-src"] == "'self'" and policy["frame-ancestors"] == "'none'"
    assert policy["object-src"] == policy["base-uri"] == "'none'"
    assert not any(words in policy["script-src"] for words in ("http", "unsafe", "*"))
    assert headers["X-Content-Type-Options"] == "nosniff" and headers["X-Frame-Options"] == "DENY"
    assert headers["Referrer-Policy"] == "no-referrer" and headers["Cache-Control"] == "no-store"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"


@pytest.fixture(scope="module")
def address(serve: Serve, straggler: OpenRun) -> str:
    return serve([straggler], token=TOKEN)


@pytest.fixture(scope="module")
def other_site() -> Iterator[int]:
    """Port of a server of somebody else's pages, on the same machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()


def test_the_printed_link_opens_every_page_also_from_another_site(page: Page, other_site: int) -> None:
    page.browser.get(page.address + "/")
    page.browser.delete_all_cookies()  # of tests before it, in whatever order
    page.browser.get(page.address + "/")
    page.wait("return document.body && document.body.innerText.includes('?token=')")  # one line without the token
    page.browser.get(f"http://localhost:{other_site}/nothing")  # its pages may lead here
    page.js(f"location.href = '{page.address}/?token={TOKEN}'")
    page.wait(f"return location.href === '{page.address}/' && document.querySelector('#content h1')")
    page.browser.delete_all_cookies()
    assert page.visit(f"/?token={TOKEN}") == [] and page.browser.current_url == page.address + "/"
    assert page.js("return document.cookie").count(TOKEN) == 0  # HttpOnly
    assert [page.turn_to(shown.title) for shown in PAGES[1:3]] == [[], []]
    page.browser.get(page.address + "/history")
    page.wait("return document.querySelector('#content h1')")


def test_pages_of_another_origin_read_nothing(page: Page, other_site: int) -> None:
    page.visit(f"/?token={TOKEN}")
    asked = json.dumps(page.address + REPORT)
    for name in ("127.0.0.1", "localhost"):  # on 127.0.0.1 only the port differs: the cookie comes along
        page.browser.get(f"http://{name}:{other_site}/nothing")
        page.messages()
        for mode in ("no-cors", "cors"):
            how = f'{{ mode: "{mode}", credentials: "include" }}'
            page.browser.execute_async_script(f"fetch({asked}, {how}).then(arguments[0], arguments[0])")
            about = [m["params"] for m in page.messages() if "report.json" in json.dumps(m["params"])]
            assert about and 200 not in {m["response"]["status"] for m in about if "response" in m}, (name, mode)
