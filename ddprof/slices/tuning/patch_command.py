"""`ddprof patch`: fixes as an edit of the script."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from ddprof.cli.load import say, tell
from ddprof.cli.output import write_file
from ddprof.errors import NoUsableInput


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
    from ddprof.slices.tuning.patching.patch import script_patch

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
