"""FIXES.toml: fixes as a file that `ddprof analyze` writes, users edit and `ddprof run --apply` reads."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from ddprof.errors import UsageError
from ddprof.settings.wanted import WantedFix, shown
from ddprof.untrusted.plain_text import clean
from ddprof.untrusted.regular_files import read_bounded

SCHEMA = "ddprof.fixes/1"
_KEYS = {"set", "at", "finding", "why"}
_MAX_BYTES = 1 << 20


def read_fixes(path: Path) -> tuple[WantedFix, ...]:
    """The fixes of a file. Raises UsageError, which names it."""
    try:
        text = read_bounded(path, _MAX_BYTES).decode("utf-8")
        return parse_fixes(text)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from None


def parse_fixes(text: str) -> tuple[WantedFix, ...]:
    """The fixes of a file's text. Raises ValueError."""
    document = tomllib.loads(text)
    if document.get("schema") != SCHEMA:
        raise ValueError(f"schema is {str(document.get('schema'))[:40]!r}, wanted {SCHEMA!r}")
    rows = document.get("fix", [])
    if not isinstance(rows, list) or set(document) - {"schema", "fix"}:
        raise ValueError("may hold only the schema and [[fix]] tables")
    return tuple(_fix(row) for row in rows)


def _fix(row: Any) -> WantedFix:
    if not isinstance(row, dict) or not isinstance(row.get("set"), dict):
        raise ValueError("a [[fix]] needs set = { NAME = VALUE }")
    unknown = set(row) - _KEYS
    if unknown:
        raise ValueError(f"a [[fix]] has {', '.join(sorted(unknown))[:100]}: wants {', '.join(sorted(_KEYS))}")
    at, finding = row.get("at", ""), row.get("finding", "")
    if not isinstance(at, str) or not isinstance(finding, str):
        raise ValueError("at and finding of a [[fix]] are text")
    return WantedFix(row["set"], at, finding)


def write_fixes(fixes: Iterable[tuple[WantedFix, str] | str], head: Sequence[str] = ()) -> str:
    """The file's text; each fix with its reason, lines of comment at the top, and a comment for each text."""
    lines = [*(f"# {clean(line)}" for line in head), f'schema = "{SCHEMA}"']
    for entry in fixes:
        if isinstance(entry, str):
            lines += ["", f"# {clean(entry)}"]
            continue
        fix, why = entry
        values = ", ".join(f"{name} = {_literal(value)}" for name, value in fix.values.items())
        lines += ["", "[[fix]]"]
        lines += [f"{key} = {_literal(clean(text))}" for key, text in (("finding", fix.finding), ("why", why)) if text]
        lines += [f"at = {_literal(fix.at)}"] if fix.at else []
        lines.append(f"set = {{ {values} }}")
    return "\n".join(lines) + "\n"


def _literal(value: object) -> str:
    """A TOML literal: JSON's numbers, switches and strings, with DEL escaped."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return shown(value)
