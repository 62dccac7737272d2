"""Writes the table of slices in CONTRIBUTING.md: one sentence each, and lines of Python of the core and of each.

python .ci/house.py rewrite the table python .ci/house.py --check exit with 1 where the table lists other slices than
there are
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "CONTRIBUTING.md"
TREES = ("ddprof", "analyzers", "dashboard")
_TABLE = re.compile(r"(?<=\| --- \| --- \| ---: \|\n)(?:\|.*\n)+")


def lines_below(*folders: Path) -> int:
    """Lines of all Python files below folders."""
    files = {file for folder in folders for file in folder.rglob("*.py")}
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)


def rows() -> dict[str, str]:
    """The row of the core and of each slice, by name."""
    slices = sorted(file.parent for file in (ROOT / "ddprof" / "slices").glob("*/__init__.py"))
    beside = lines_below(*slices)
    core = lines_below(*(ROOT / tree for tree in TREES)) - beside
    rows = {"core": f"| core | the picture above | {core:,} |"}
    for folder in slices:
        docstring = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
        sentence = " ".join(docstring.split("\n\n")[0].split())
        rows[folder.name] = f"| `{folder.name}` | {sentence} | {lines_below(folder):,} |"
    return rows


def main() -> int:
    """Rewrite the table, or with `--check` return 1 where it lists other slices than there are."""
    text, table = PAGE.read_text(encoding="utf-8"), rows()
    (told,) = _TABLE.findall(text)
    if "--check" in sys.argv:
        return int(re.findall(r"^\| `?(\w+)`? \|", told, re.MULTILINE) != list(table))
    PAGE.write_text(_TABLE.sub("".join(f"{row}\n" for row in table.values()), text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
