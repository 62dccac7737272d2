"""A unified diff of the scripts for several fixes, as `git apply` takes it, and what it leaves to people."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ddprof.outside.regular_files import read_bounded
from ddprof.settings.catalogue import PROCESS
from ddprof.settings.wanted import WantedFix
from ddprof.slices.tuning.patching.edit import NotEdited, edited

_MAX_SCRIPT_BYTES = 4 << 20


@dataclass(frozen=True)
class ScriptPatch:
    """`diff`: "" where no line can be edited; `by_hand`: fixes that are not in it, each with the reason."""

    diff: str
    edited: tuple[WantedFix, ...]
    by_hand: tuple[tuple[WantedFix, str], ...]


def script_patch(fixes: Sequence[WantedFix], root: Path) -> ScriptPatch:
    """The edits of the scripts below `root` that the fixes name. Nothing is written."""
    before: dict[str, str] = {}
    after: dict[str, str] = {}
    done: list[WantedFix] = []
    left: list[tuple[WantedFix, str]] = []
    # From the last line upwards: an edit may add lines, and the places count those of the script as it ran.
    for fix in sorted(fixes, key=lambda fix: -_line(fix)):
        try:
            name = _script(fix)
            if name not in before:
                before[name] = after[name] = _text(root / name)
            after[name] = edited(after[name], fix)
            done.append(fix)
        except NotEdited as reason:
            left.append((fix, str(reason)))
    diffs = [_diff(name, text, after[name]) for name, text in sorted(before.items())]
    in_order = [fix for fix in fixes if fix in done]
    return ScriptPatch("".join(diffs), tuple(in_order), tuple(row for fix in fixes for row in left if row[0] is fix))


def _line(fix: WantedFix) -> int:
    return int(fix.at.rpartition(":")[2]) if fix.at else 0


def _script(fix: WantedFix) -> str:
    if PROCESS in fix.targets:
        raise NotEdited("it belongs to the launcher: ddprof run --apply, or the environment of the command")
    if not fix.at:
        raise NotEdited("the line that makes the object is not known")
    path = Path(fix.at.rpartition(":")[0])
    if path.is_absolute() or ".." in path.parts:
        raise NotEdited(f"{path} lies outside the folder that is patched")
    return path.as_posix()


def _text(path: Path) -> str:
    try:
        return read_bounded(path, _MAX_SCRIPT_BYTES).decode("utf-8")
    except OSError as error:
        raise NotEdited(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise NotEdited(f"{path}: not UTF-8") from None


def _lines(text: str) -> list[str]:
    """As git counts them: a form feed or a carriage return ends none."""
    return re.findall(r"[^\n]*\n|[^\n]+\Z", text)


def _diff(name: str, before: str, after: str) -> str:
    if before == after:
        return ""
    lines = difflib.unified_diff(_lines(before), _lines(after), f"a/{name}", f"b/{name}")
    # difflib knows no file whose last line has no end.
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
