"""The documentation as a site: it builds without a warning, is whole, and asks no other host for anything."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import ddprof
from ddprof.analyzers.catalogue import catalogue, training_checks
from ddprof.cli.demo import read_samples, sample_root

ROOT = Path(__file__).resolve().parents[2]
REPOSITORY = "https://host.invalid/owner/ddprof/blob/main"
_LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
_LINKED = {"canonical", "next", "prev"}  # relations of a link that no browser loads
Pages = list[tuple[Path, "_Elements"]]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly."""
    for needed in ("mkdocs", "material", "mkdocstrings"):
        pytest.importorskip(needed, reason=f"{needed} is not installed (the extra `docs`)")
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(out)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "DDPROF_REPOSITORY": REPOSITORY}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


class _Elements(HTMLParser):
    """Links of a page, and files that it loads."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the address that an element has."""
        named = {name: value or "" for name, value in attrs}
        address = named.get(_LOADED.get(tag, ""), "")
        if address and named.get("rel") not in _LINKED:
            self.loads.append(address)
        if tag == "a" and "href" in named:
            self.links.append(named["href"])


@pytest.fixture(scope="module")
def pages(site: Path) -> list[tuple[Path, _Elements]]:
    """Every page with its elements."""
    return [(page, _Elements(page)) for page in sorted(site.rglob("*.html"))]


def test_a_page_loads_files_of_the_site_alone(site: Path, pages: Pages) -> None:
    loaded = [(page, address) for page, elements in pages for address in elements.loads]
    assert len(loaded) > 100
    for page, address in loaded:
        base = site if page.name == "404.html" else page.parent
        is_ours = not re.match(r"(?:https?:)?//", address)
        assert is_ours and (base / address.split("?")[0].lstrip("/")).is_file(), f"{page.name}: no {address}"
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(\s*['\"]?(?:https?:)?//|@import", sheet.read_text(encoding="utf-8")), sheet


def test_every_link_inside_leads_to_a_page(pages: Pages) -> None:
    links = [(page, link) for page, elements in pages if page.name != "404.html" for link in elements.links]
    inside = [(page, re.split("[#?]", link)[0]) for page, link in links if not re.match(r"[a-z]+:|#|$", link)]
    assert [(page.name, link) for page, link in inside if not (page.parent / link).exists()] == []


def test_files_of_the_source_are_shown_by_the_repository(pages: Pages) -> None:
    links = {link for _, elements in pages for link in elements.links if link.startswith(REPOSITORY)}
    assert f"{REPOSITORY}/ddprof/report/model.py" in links
    assert all((ROOT / link.removeprefix(f"{REPOSITORY}/").split("#")[0]).exists() for link in links)


def test_every_finding_has_a_page_with_its_words_and_its_card(site: Path) -> None:
    shown = {found["id"] for truth in read_samples(sample_root()).values() for found in truth["findings"]}
    assert len(shown) > 20
    for name in [*catalogue(), *training_checks()]:
        text = (site / "findings" / f"{name}.html").read_text(encoding="utf-8")
        assert "What it detects." in text, name
        assert (f">{name}</code>" in text.partition('<template shadowrootmode="open">')[2]) == (name in shown), name


def test_the_reference_has_every_public_name(site: Path) -> None:
    # `ddprof.capture` is a package as well: the function is documented where it is defined.
    known = set(re.findall(r'id="ddprof\.(?:marks\.)?(\w+)"', (site / "api.html").read_text(encoding="utf-8")))
    assert set(ddprof.__all__) - known == {"__version__"}
