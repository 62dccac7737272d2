"""Links of README and docs lead somewhere, and every page is in the index."""

import re
from pathlib import Path

import pytest
from snippets import PAGES, ROOT


def links(document: Path) -> list[str]:
    return re.findall(r"\]\((?!https?:|mailto:|#)([^)#\s]+)", document.read_text(encoding="utf-8"))


@pytest.mark.parametrize("document", [ROOT / "CONTRIBUTING.md", *PAGES], ids=lambda path: path.name)
def test_links_lead_to_files(document: Path) -> None:
    assert [link for link in links(document) if not (document.parent / link).exists()] == []


def test_every_page_is_in_the_index() -> None:
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert pages <= set(links(ROOT / "docs" / "index.md"))
