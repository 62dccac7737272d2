"""`python -m benchmarks.gpu_scripts record --out DIR --seconds N` on a machine with a GPU; `... judge DIR` anywhere."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.gpu_scripts.faults import runs
from benchmarks.gpu_scripts.judge import judge, lines, read
from benchmarks.gpu_scripts.record import record


def main(arguments: Sequence[str] | None = None) -> None:
    """Record or judge what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_scripts", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="run the scripts under ddprof, one at a time on the device")
    recording.add_argument("names", nargs="*", metavar="NAME", help="such as gpt-opt-1 (fault) and gpt-opt-0; all")
    recording.add_argument("--out", type=Path, required=True)
    recording.add_argument("--seconds", type=float, default=240.0, help="no run begins later")
    recording.add_argument("--wide", type=int, default=5, help="processes at once")
    judging = commands.add_parser("judge", help="analyze recordings and judge what is said")
    judging.add_argument("folders", nargs="+", type=Path, metavar="DIR")
    judging.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_args(arguments)
    if options.command == "record":
        record(options.out.resolve(), options.names or runs(), options.seconds, options.wide)
    else:
        judged = judge(read(options.folders))
        print(json.dumps(judged, indent=1) if options.format == "json" else "\n".join(lines(judged)))


if __name__ == "__main__":
    main()
