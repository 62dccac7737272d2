"""`ddprof run`: start a training job with capture switched on."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ddprof._version import __version__
from ddprof.capture.files.config import CaptureConfig, rank_selected
from ddprof.capture.files.layout import MANIFEST
from ddprof.capture.files.storage import write_json
from ddprof.capture.guard import Guard, say
from ddprof.capture.launcher import manifest, run_folder
from ddprof.capture.launcher.host.gpus import GpuWatch
from ddprof.capture.launcher.host.nvml import Nvml
from ddprof.capture.launcher.host.topology import read_topology
from ddprof.capture.launcher.launch import run_child
from ddprof.capture.launcher.monitor import JobMonitor
from ddprof.capture.launcher.salvage import salvage
from ddprof.capture.launcher.shim import child_environment, package_dir, write_shim
from ddprof.capture.launcher.summary import summarize
from ddprof.capture.launcher.upload import is_url, local_parent, upload
from ddprof.errors import UsageError


@dataclass(frozen=True)
class RunOptions:
    """The command's options."""

    out: str
    name: str | None
    run_dir: Path | None
    skip: int
    steps: int
    every: int
    ranks: str
    mode: str


@click.command("run", context_settings={"allow_interspersed_args": False})
@click.option("--out", default="ddprof-runs", show_default=True, help="Folder for runs, or an fsspec URL (s3://...).")
@click.option("--name", help="Name of this run (default: the script's).")
@click.option("--run-dir", type=click.Path(path_type=Path), help="Write into this very folder (several nodes).")
@click.option("--skip", default=5, show_default=True, type=click.IntRange(0), help="Steps before the first window.")
@click.option("--steps", default=5, show_default=True, type=click.IntRange(1), help="Steps in a trace window.")
@click.option("--every", default=0, type=click.IntRange(0), help="Open a window every N steps (default: only one).")
@click.option("--ranks", default="all", show_default=True, help="Ranks that trace: all, 0,7 or sample:32.")
@click.option(
    "--mode",
    type=click.Choice(["trace", "monitor"]),
    default="trace",
    show_default=True,
    help="monitor: always on, a window only on trouble or by `ddprof trigger`.",
)
@click.argument("command_line", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
def command(command_line: tuple[str, ...], **given: Any) -> None:
    """Run COMMAND unchanged and keep a trace of every rank.

    \b
    ddprof run -- torchrun --nproc-per-node=8 train.py
    ddprof analyze ddprof-runs/latest

    The exit code is the command's own (128 + n where signal n ended it).
    """
    options = RunOptions(**given)
    _check_ranks(options.ranks)
    started_ns = time.time_ns()
    folder = _folder(options, command_line, started_ns)
    environment = dict(os.environ) if folder is None else _environment(folder, options)
    shown = {key: given[key] for key in ("skip", "steps", "every", "ranks", "mode")}
    begun = manifest.begin(command_line, shown, started_ns)
    monitor, gpus, tick = None, GpuWatch(None), None
    if folder is not None:
        _write(folder, begun)
        gpus = GpuWatch(Nvml.open())
        monitor = _monitor(folder, options, gpus)
        tick = monitor.tick if monitor is not None else gpus.tick if gpus.exists else None
    code = run_child(command_line, environment, tick)
    if code in (126, 127):
        say(f"{command_line[0]}: {'not found' if code == 127 else 'cannot be executed'}, or it ended with {code}")
    if folder is not None:
        seen = {"triggered": [] if monitor is None else monitor.reasons, "gpus": gpus.summary()}
        _finish(folder, options, begun, seen, code)
    sys.exit(code)


def _check_ranks(ranks: str) -> None:
    try:
        rank_selected(ranks, 0, 1)
    except ValueError:
        raise UsageError(f"--ranks {ranks}: want all, a list like 0,7 or sample:32") from None


def _folder(options: RunOptions, command_line: tuple[str, ...], started_ns: int) -> run_folder.RunFolder | None:
    """Make the run folder. Where none can be made, the job still runs, without capture."""
    parent = local_parent() if is_url(options.out) else Path(options.out)
    name = options.name or _name_of(command_line)
    try:
        if options.run_dir is not None:
            return run_folder.join(options.run_dir)
        folder = run_folder.create(parent, name, started_ns / 1e9)
    except OSError as error:
        say(f"no capture, the command runs without it: {error}")
        return None
    if folder.fallback_reason:
        say(f"{folder.fallback_reason}: writing to {folder.path}")
    return folder


def _environment(folder: run_folder.RunFolder, options: RunOptions) -> dict[str, str]:
    """The child's environment, with the shim in it."""
    config = CaptureConfig(
        run_dir=str(folder.path),
        package_dir=str(package_dir()),
        version=__version__,
        skip_steps=options.skip,
        window_steps=options.steps,
        every_steps=options.every,
        ranks=options.ranks,
        mode=options.mode,
        clock=os.environ.get("DDPROF_CLOCK", "auto"),
    )
    try:
        return child_environment(write_shim(config), os.environ)
    except OSError as error:
        say(f"no capture, the command runs without it: {error}")
        return dict(os.environ)


def _monitor(folder: run_folder.RunFolder, options: RunOptions, gpus: GpuWatch) -> JobMonitor | None:
    if options.mode != "monitor":
        return None
    leader = folder.manifest.name == MANIFEST  # one `ddprof run` of a job asks for windows, not one per node
    return JobMonitor(folder.path, options.steps, leader, os.getpid(), gpus)


def _name_of(command_line: tuple[str, ...]) -> str:
    """The script's name without its ending, else the program's."""
    scripts = [Path(word).stem for word in command_line if word.endswith(".py")]
    return scripts[0] if scripts else Path(command_line[0]).name


def _finish(
    folder: run_folder.RunFolder, options: RunOptions, begun: dict[str, Any], seen: dict[str, Any], code: int
) -> None:
    """Complete the manifest with what was `seen` of the host, and say in one line where things are and what is next."""
    notes = salvage(folder.path)
    summary = summarize(folder.path)
    topology = Guard().attempt("topology", read_topology)
    ended = manifest.end(begun, summary, code, time.time_ns(), notes, folder.manifest.name == MANIFEST)
    _write(folder, {**ended, **seen, "topology": topology})
    planned = options.skip if options.mode == "trace" else None
    say(manifest.last_line(folder.path, summary, planned))
    if is_url(options.out):
        _upload(folder.path, options.out)


def _upload(path: Path, url: str) -> None:
    """A store that cannot be reached costs one line; the run stays where it is."""
    guard = Guard()
    address = guard.attempt(f"upload to {url}", lambda: upload(path, url))
    say(f"uploaded to {address}" if address else f"not uploaded, the run stays in {path}: {'; '.join(guard.faults)}")


def _write(folder: run_folder.RunFolder, content: dict[str, Any]) -> None:
    try:
        write_json(folder.manifest, content)
    except OSError as error:
        say(f"{folder.manifest}: not written: {error.strerror}")


if __name__ == "__main__":
    command()
