"""The net under a refactoring: every report of many runs, written by one commit and compared with another's.

    python benchmarks/report_net.py write OUT FOLDER...     # one subfolder per run found below the folders
    python benchmarks/report_net.py compare BEFORE AFTER    # exit code 1 where a report differs

Only the command line of ddprof is used, so the script of one commit serves both: run it with the interpreter of either
checkout. Every folder that holds files is one run. Of each the text, the JSON and the HTML page are kept, with the exit
code and what was said on stderr. Runs are named relative to their own folder, so no report holds a path that differs.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from difflib import unified_diff
from pathlib import Path

from click.testing import CliRunner

from ddprof.cli.main import cli

ARGUMENTS = {
    "report.txt": ("analyze", "{run}", "--no-cache"),
    "report.json": ("analyze", "{run}", "--no-cache", "--format", "json"),
    "report.html": ("analyze", "{run}", "--no-cache", "--format", "html"),
}
NOT_INPUT = {"label.json", "README.md", "LICENSE"}
WRITTEN_AT = re.compile(r"\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?")
SHOWN_LINES = 12


def runs_below(folders: Iterable[Path]) -> dict[str, Path]:
    """Every folder that holds files which ddprof could read, by a name that is its path without separators."""
    runs = {}
    for top in folders:
        for folder, _, files in sorted(os.walk(top)):
            if set(files) - NOT_INPUT and "__pycache__" not in folder:
                name = Path(folder).relative_to(top.parent)
                runs["__".join(name.parts)] = Path(folder)
    return runs


def write_run(name: str, run: Path, out: Path) -> str:
    """Write the reports of one run below `out`; returns its name."""
    target = out / name
    target.mkdir(parents=True, exist_ok=True)
    os.chdir(run.parent)
    for file, arguments in ARGUMENTS.items():
        result = CliRunner().invoke(cli, [part.format(run=run.name) for part in arguments])
        failure = f"{type(result.exception).__name__}: {result.exception}\n" if result.exception else ""
        (target / file).write_text(result.stdout, encoding="utf-8")
        (target / f"{file}.stderr").write_text(f"exit {result.exit_code}\n{failure}{result.stderr}", encoding="utf-8")
    return name


def write(folders: Sequence[Path], out: Path) -> int:
    """Write the reports of all runs below the folders, as many at once as there are cores."""
    runs = runs_below(folder.resolve() for folder in folders)
    with ProcessPoolExecutor() as pool:
        tasks = [pool.submit(write_run, name, run, out.resolve()) for name, run in runs.items()]
        for done, task in enumerate(tasks, 1):
            print(f"{done}/{len(tasks)} {task.result()}", file=sys.stderr)
    return 0


def compare(before: Path, after: Path) -> int:
    """Print what differs between two folders of reports; 1 where anything does."""
    files = {path.relative_to(top) for top in (before, after) for path in top.rglob("*") if path.is_file()}
    differing = 0
    for file in sorted(files):
        texts = [_text(top / file) for top in (before, after)]
        if texts[0] == texts[1]:
            continue
        differing += 1
        print(f"== {file}")
        lines = [text.splitlines() for text in texts]
        for shown, line in enumerate(unified_diff(*lines, lineterm="", n=0)):
            if shown == SHOWN_LINES:
                print("   ...")
                break
            print(f"   {line[:200]}")
    print(f"{len(files)} files, {differing} differ")
    return 1 if differing else 0


def _text(path: Path) -> str:
    return WRITTEN_AT.sub("(time)", path.read_text(encoding="utf-8")) if path.exists() else "(missing)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(description="Write the reports of many runs, or compare two commits' reports.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    writing = verbs.add_parser("write", help="write every report of the runs below FOLDER...")
    writing.add_argument("out", type=Path, metavar="OUT")
    writing.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    comparing = verbs.add_parser("compare", help="compare two folders of reports byte by byte")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    options = parser.parse_args(arguments)
    if options.verb == "write":
        return write(options.folders, options.out)
    return compare(options.before, options.after)


if __name__ == "__main__":
    raise SystemExit(main())
