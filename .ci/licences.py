"""Writes docs/licences.md: what ddprof depends on, by pyproject.toml, and under which licence each says it stands.

    python .ci/licences.py

The licence is what the installed package's own metadata states; a package that is not installed here keeps what the
page had for it. Standard library only.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "licences.md"
BASE = "(always)"
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_ROW = re.compile(r"^\| `([^`]+)` \|.*\| (.*?) \|$", re.MULTILINE)
_INTRODUCTION = """# Licences

ddprof is under the Apache License 2.0. It contains no code of its dependencies: pip installs them beside it. This page
is made by [`.ci/licences.py`](../.ci/licences.py) of what their metadata states; it lists what
[`pyproject.toml`](../pyproject.toml) names, and not what these need in turn. A release has a list of everything,
`sbom.json` in CycloneDX.

torch, which is your own and no requirement, is under the BSD 3-Clause licence.

"""


def extras_by_name() -> dict[str, list[str]]:
    """Dependency -> the extras that bring it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras_of: dict[str, list[str]] = {}
    for extra, needed in {BASE: project["dependencies"], **project["optional-dependencies"]}.items():
        for requirement in needed:
            name = _NAME.match(requirement)
            assert name is not None, requirement
            extras_of.setdefault(name[0], []).append(extra)
    return dict(sorted(extras_of.items(), key=lambda item: item[0].lower()))


def licence(name: str) -> str | None:
    """Licence that the installed package states; None where it is not installed."""
    try:
        known = metadata(name)
    except PackageNotFoundError:
        return None
    classified = [c.split(" :: ")[-1] for c in known.get_all("Classifier") or [] if c.startswith("License :: ")]
    stated = (known.get("License") or "").strip().splitlines() or [""]
    short = stated[0] if len(stated[0]) < 30 and not stated[0].startswith("Copyright") else ""
    return known.get("License-Expression") or short or ", ".join(classified) or "not stated"


def page(before: str) -> str:
    """The page; `before`: as it was."""
    kept = dict(_ROW.findall(before))
    rows = [
        f"| `{name}` | {', '.join(extras)} | {licence(name) or kept.get(name, 'not stated')} |"
        for name, extras in extras_by_name().items()
    ]
    return _INTRODUCTION + "\n".join(["| package | extra | licence |", "| --- | --- | --- |", *rows, ""])


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""), encoding="utf-8")
