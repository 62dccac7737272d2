"""A hook of MkDocs: pages that lie beside docs/, where a code host looks for them, are pages of the site as well."""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

PAGES = {"CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security.md", "CHANGELOG.md": "changelog.md"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add them under the name that they have on the site."""
    root = Path(config.config_file_path).parent
    for name, uri in PAGES.items():
        files.append(File.generated(config, uri, content=(root / name).read_text(encoding="utf-8")))
    return files
