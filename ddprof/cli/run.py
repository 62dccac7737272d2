"""`ddprof run`: start a training job with capture switched on."""

from __future__ import annotations

import base64
import json
import os
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import click

from ddprof._version import __version__
from ddprof.capture import run_folder
from ddprof.capture.config import CaptureConfig, rank_selected
from ddprof.capture.files import write_json
from ddprof.capture.guard import say
from ddprof.capture.launch import run_child
from ddprof.capture.layout import MANIFEST, SCHEMA, host_label
from ddprof.capture.monitor import JobMonitor
from ddprof.capture.shim import child_environment, package_dir, write_shim
from ddprof.errors import UsageError


@click.command("run", context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False})
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("ddprof-runs"), show_default=True, help="Folder for runs."
)
@click.option("--name", help="Name of this run (default: the script's).")
@click.option(
    "--run-dir", type=click.Path(path_type=Path), help="Write into this very folder (one job on several nodes)."
)
@click.option(
    "--skip", default=5, show_default=True, type=click.IntRange(0), help="Steps before the first trace window."
)
@click.option("--steps", default=5, show_default=True, type=click.IntRange(1), help="Steps in a trace window.")
@click.option("--every", default=0, type=click.IntRange(0), help="Open a window every N steps (default: only one).")
@click.option("--ranks", default="all", show_default=True, help="Ranks that trace: all, 0,7 or sample:32.")
@click.option("--mode", type=click.Choice(["trace", "monitor"]), default="trace", show_default=True)
@click.argument("command_line", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
def command(
    out: Path,
    name: str | None,
    run_dir: Path | None,
    skip: int,
    steps: int,
    every: int,
    ranks: str,
    mode: str,
    command_line: tuple[str, ...],
) -> None:
    """Run COMMAND unchanged and keep a trace of every rank.

    \b
    ddprof run -- torchrun --nproc-per-node=8 train.py
    ddprof analyze ddprof-runs/latest

    The exit code is the command's own (128 + n where signal n ended it).
    """
    _check_ranks(ranks)
    started_ns = time.time_ns()
    folder, environment = _prepare(
        out, run_dir, name or _name_of(command_line), started_ns, skip, steps, every, ranks, mode
    )
    manifest = _first_manifest(command_line, started_ns, skip, steps, every, ranks, mode)
    if folder is not None:
        _write(folder, manifest)
    monitor = _monitor(folder, mode, steps)
    code = run_child(command_line, environment, None if monitor is None else monitor.tick)
    if code in (126, 127):
        say(f"{command_line[0]}: {'not found' if code == 127 else 'cannot be executed'}")
    if folder is not None:
        if monitor is not None:
            manifest["triggered"] = monitor.reasons
        _finish(folder, manifest, code)
    sys.exit(code)


def _monitor(folder: run_folder.RunFolder | None, mode: str, steps: int) -> JobMonitor | None:
    if folder is None or mode != "monitor":
        return None
    return JobMonitor(folder.path, steps, leader=folder.manifest.name == MANIFEST, pid=os.getpid())


def _check_ranks(ranks: str) -> None:
    try:
        rank_selected(ranks, 0, 1)
    except ValueError:
        raise UsageError(f"--ranks {ranks}: want all, a list like 0,7 or sample:32") from None


def _prepare(
    out: Path,
    run_dir: Path | None,
    name: str,
    started_ns: int,
    skip: int,
    steps: int,
    every: int,
    ranks: str,
    mode: str,
) -> tuple[run_folder.RunFolder | None, dict[str, str]]:
    """Make the run folder and the child's environment. Where neither can be, the job still runs, without capture."""
    try:
        folder = run_folder.join(run_dir) if run_dir else run_folder.create(out, name, started_ns / 1e9)
        config = CaptureConfig(
            run_dir=str(folder.path),
            package_dir=str(package_dir()),
            version=__version__,
            skip_steps=skip,
            window_steps=steps,
            every_steps=every,
            ranks=ranks,
            mode=mode,
            clock=os.environ.get("DDPROF_CLOCK", "auto"),
        )
        shim = write_shim(config)
    except OSError as error:
        say(f"no capture, the command runs without it: {error}")
        return None, dict(os.environ)
    if folder.fallback_reason:
        say(f"{folder.fallback_reason}: writing to {folder.path}")
    return folder, child_environment(shim, os.environ)


def _name_of(command_line: tuple[str, ...]) -> str:
    """The script's name without its ending, else the program's."""
    scripts = [Path(word).stem for word in command_line if word.endswith(".py")]
    return scripts[0] if scripts else Path(command_line[0]).name


def _first_manifest(
    command_line: tuple[str, ...], started_ns: int, skip: int, steps: int, every: int, ranks: str, mode: str
) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "command": shlex.join(command_line),
        "argv_base64": base64.b64encode(json.dumps(list(command_line)).encode()).decode(),
        "cwd": str(Path.cwd()),
        "host": host_label(),
        "ddprof": __version__,
        "started_utc": _utc(started_ns),
        "started_ns": started_ns,
        "ended_utc": None,
        "exit_code": None,
        "options": {"skip": skip, "steps": steps, "every": every, "ranks": ranks, "mode": mode},
    }


def _finish(folder: run_folder.RunFolder, manifest: dict[str, Any], code: int) -> None:
    """Complete the manifest and say in one line where things are and what to do next."""
    salvaged = run_folder.salvage(folder.path)
    summary = run_folder.summarize(folder.path)
    ended_ns = time.time_ns()
    missing = sorted(set(range(summary.world_size or 0)) - set(summary.ranks))
    manifest.update(
        ended_utc=_utc(ended_ns),
        ended_ns=ended_ns,
        exit_code=code,
        ranks=list(summary.ranks),
        missing_ranks=missing,
        world_size=summary.world_size,
        hosts={str(rank): host for rank, host in summary.hosts.items()},
        versions=summary.versions,
        overhead=summary.overhead,
        disabled=[*summary.notes, *salvaged],
    )
    _write(folder, manifest)
    say(_last_line(folder.path, summary))


def _last_line(path: Path, summary: run_folder.RunSummary) -> str:
    shown = os.path.relpath(path)
    shown = str(path) if shown.startswith("..") else shown
    if not summary.ranks:
        return f"no training process was seen (no optimizer step, no process group); settings are in {shown}"
    own, window = summary.overhead["own_frac"], summary.overhead["window_frac"]
    cost = "" if own is None else f", overhead {own:.2%} of a step"
    cost += "" if window is None else f" ({max(window, 0.0):+.0%} inside the trace window)"
    ranks = f"{len(summary.ranks)} rank{'s' if len(summary.ranks) != 1 else ''}"
    windows = f"{summary.windows} trace{'s' if summary.windows != 1 else ''}"
    return f"{windows} of {ranks} in {shown}{cost}; next: ddprof analyze {shlex.quote(shown)}"


def _write(folder: run_folder.RunFolder, manifest: dict[str, Any]) -> None:
    try:
        write_json(folder.manifest, manifest)
    except OSError as error:
        say(f"{folder.manifest}: not written: {error.strerror}")


def _utc(at_ns: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_ns / 1e9))


if __name__ == "__main__":
    command()
