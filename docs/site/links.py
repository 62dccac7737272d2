"""A hook of MkDocs: links of a page are those that a code host follows, and lead somewhere on the site, too.

In the repository a page links to files beside it and outside of docs/. On the site a page that moved is found under its
new name; a file of the source is shown by the repository (`extra.repository`), or is only named where there is none.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page
from root_pages import PAGES

_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)")
_MOVED = {uri: name for name, uri in PAGES.items()}


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The text with links of the site."""
    uri = page.file.src_uri
    origin = _MOVED.get(uri, f"docs/{uri}")
    root = Path(config.config_file_path).parent

    def of_site(link: re.Match[str]) -> str:
        words, target, anchor = link[1], link[2], link[3] or ""
        path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), target))
        place = PAGES.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
        shown = files.get_file_from_path(place) if place is not None else None
        if place is not None and shown is not None and shown.inclusion.is_included():
            return f"[{words}]({posixpath.relpath(place, posixpath.dirname(uri) or '.')}{anchor})"
        if not (root / path).exists():
            raise PluginError(f"{origin}: the link to {target} leads nowhere")
        repository = config.extra["repository"].rstrip("/")
        return f"[{words}]({repository}/{path}{anchor})" if repository else words

    return _LINK.sub(of_site, markdown)
