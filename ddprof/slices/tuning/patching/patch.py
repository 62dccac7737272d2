"""`ddprof patch`: a unified diff of the scripts for several fixes, for `git apply`, and the fixes left to people."""

from __future__ import annotations

import difflib
import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from ddprof.cli.load import say, tell
from ddprof.cli.output import write_file
from ddprof.errors import NoUsableInput
from ddprof.settings.catalogue import PROCESS
from ddprof.settings.wanted import WantedFix
from ddprof.slices.tuning.patching.edit import NotEdited, edited
from ddprof.untrusted.regular_files import read_bounded

_MAX_SCRIPT_BYTES = 4 << 20


@dataclass(frozen=True)
class ScriptPatch:
    """Fixes as edits of scripts: `diff`, "" without any; `already`: there before; `by_hand`: the others, with why."""

    diff: str
    edited: tuple[WantedFix, ...]
    already: tuple[WantedFix, ...]
    by_hand: tuple[tuple[WantedFix, str], ...]


def script_patch(fixes: Sequence[WantedFix], root: Path) -> ScriptPatch:
    """The edits of the scripts below `root` that the fixes name. Nothing is written."""
    before: dict[str, str] = {}
    after: dict[str, str] = {}
    done: list[WantedFix] = []
    already: list[WantedFix] = []
    left: list[tuple[WantedFix, str]] = []
    # From the last line upwards: an edit may add lines, and the places count those of the script as it ran.
    for fix in sorted(fixes, key=lambda fix: -_line(fix)):
        try:
            name = _script(fix, root)
            if name not in before:
                before[name] = after[name] = _text(root / name)
            text = edited(after[name], fix)
            (already if text == after[name] else done).append(fix)
            after[name] = text
        except NotEdited as reason:
            left.append((fix, str(reason)))
    diffs = [_diff(name, text, after[name]) for name, text in sorted(before.items())]
    by_hand = tuple(row for fix in fixes for row in left if row[0] is fix)
    in_patch, held = (tuple(fix for fix in fixes if fix in some) for some in (done, already))
    return ScriptPatch("".join(diffs), in_patch, held, by_hand)


def _line(fix: WantedFix) -> int:
    return int(fix.at.rpartition(":")[2]) if fix.at else 0


def _script(fix: WantedFix, root: Path) -> str:
    """Path from `root` of a fix's script: the longest suffix of the recorded path there, which may be of elsewhere."""
    if PROCESS in fix.targets:
        raise NotEdited("it belongs to the launcher: ddprof run --apply, or the environment of the command")
    if not fix.at:
        raise NotEdited("the line that makes the object is not known")
    folder = root.resolve()
    path = Path(os.path.normpath(folder / fix.at.rpartition(":")[0]))
    parts = path.relative_to(folder).parts if path.is_relative_to(folder) else path.parts[1:]
    for start in range(len(parts)):
        inside = folder.joinpath(*parts[start:])
        if inside.is_file() and inside.resolve().is_relative_to(folder):
            return inside.relative_to(folder).as_posix()
    what = f"{path} is not below {folder}" if path.exists() else f"there is no {path}"
    raise NotEdited(f"{what}: name the folder of the script by --root")


def _text(path: Path) -> str:
    try:
        return read_bounded(path, _MAX_SCRIPT_BYTES).decode("utf-8")
    except OSError as error:
        raise NotEdited(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise NotEdited(f"{path}: not UTF-8") from None


def _lines(text: str) -> list[str]:
    """Lines as git counts them: form feeds and carriage returns do not end one."""
    return re.findall(r"[^\n]*\n|[^\n]+\Z", text)


def _diff(name: str, before: str, after: str) -> str:
    if before == after:
        return ""
    lines = difflib.unified_diff(_lines(before), _lines(after), f"a/{name}", f"b/{name}")
    # difflib knows no file whose last line has no end.
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


@click.command("patch")
@click.argument("fixes", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "-o",
    "--write-patch",
    "output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the diff to this file.",
)
@click.option(
    "--root",
    default=".",
    show_default=True,
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Folder from which the scripts are named: the working directory of the run.",
)
def command(fixes: Path, output: Path | None, root: Path) -> None:
    """Turn the fixes of a FIXES.toml into a unified diff of the scripts, as `git apply` takes it.

    \b
    ddprof patch ddprof-runs/latest/FIXES.toml -o fix.patch
    git apply fix.patch

    No script is changed. A call that cannot be edited with certainty is named, with the values, on stderr.
    """
    from ddprof.settings.fixes_file import read_fixes

    patch = script_patch(read_fixes(fixes), root)
    for fix, why in patch.by_hand:
        say(f"by hand: {fix.words}: {why}")
    for fix in patch.already:
        say(f"already applied: {fix.words}")
    if not patch.diff:
        if patch.already:
            return
        raise NoUsableInput(f"{fixes}: no fix in it changes a script")
    count = len(patch.edited)
    if output is None:
        tell(patch.diff.removesuffix("\n"))
    else:
        write_file(output, patch.diff)
        say(f"wrote {output}: {count} fix{'es' * (count > 1)}; next: git apply {shlex.quote(str(output))}")
