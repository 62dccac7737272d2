"""The manifest of a run: its command, its end, and the files captured (docs/run-folder.md)."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ddprof._version import __version__
from ddprof.capture.files.layout import SCHEMA, host_label
from ddprof.capture.files.storage import text_of
from ddprof.capture.launcher.monitor import USUAL_MOST
from ddprof.capture.launcher.run_folder import SharedJob
from ddprof.capture.launcher.summary import RunSummary
from ddprof.untrusted.secrets import WORDS_KEY, encoded_words, masked_words

_HASH = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


def begin(
    command_line: Sequence[str], options: Mapping[str, Any], started_ns: int, job: SharedJob | None = None
) -> dict[str, Any]:
    """The manifest at the run's start. Secrets of the command are left out: it is run from memory. `job`: the job that
    this is one of several parts of.
    """
    words = masked_words(command_line)
    return {
        "schema": SCHEMA,
        "command": shlex.join(words),
        WORDS_KEY: encoded_words(words),
        "cwd": str(Path.cwd()),
        "job": job.name if job is not None else "",
        "commit": commit_of(Path.cwd()),
        "host": host_label(),
        "ddprof": __version__,
        "started_utc": _utc(started_ns),
        "started_ns": started_ns,
        "ended_utc": None,
        "exit_code": None,
        "options": dict(options),
    }


def end(
    manifest: Mapping[str, Any], summary: RunSummary, code: int, ended_ns: int, notes: Sequence[str], leads: bool
) -> dict[str, Any]:
    """The manifest at the run's end. `leads`: it is the run's main one, with the step times of all ranks."""
    return {
        **manifest,
        "ended_utc": _utc(ended_ns),
        "ended_ns": ended_ns,
        "exit_code": code,
        "ranks": list(summary.ranks),
        "missing_ranks": sorted(set(range(summary.world_size or 0)) - set(summary.ranks)),
        "world_size": summary.world_size,
        "hosts": {str(rank): host for rank, host in summary.hosts.items()},
        "versions": summary.versions,
        "overhead": summary.overhead,
        "step_times": {
            str(rank): times
            for rank, times in summary.step_times.items()
            if leads or summary.hosts[rank] == manifest["host"]
        },
        "disabled": [*summary.notes, *notes],
    }


def last_line(path: Path, summary: RunSummary, first_window_step: int | None) -> str:
    """The closing line of `ddprof run`: what was captured, its cost, and the next command.

    `first_window_step`: where the first window was planned, None without one.
    """
    shown = os.path.relpath(path)
    shown = str(path) if shown.startswith("..") else shown
    if not summary.ranks:
        return (
            "no training process was seen (no optimizer step, no process group, no loop over batches or a model; "
            f"a script can mark its steps by ddprof.step()); settings are in {shown}"
        )
    own_frac, window = summary.overhead["own_frac"], summary.overhead["window_frac"]
    own_frac = own_frac if own_frac is None else own_frac + (summary.overhead["stacks_frac"] or 0.0)
    cost = "" if own_frac is None else f", overhead {100 * own_frac:.2g} % of a step"
    pause_ns = summary.overhead["export_pause_ns"]
    then = f", then {pause_ns / 1e6:.0f} ms to write it" if pause_ns else ""
    cost += "" if window is None else f" ({_of_window(window, summary.overhead['window_range'])}{then})"
    if not summary.windows and first_window_step is not None and summary.steps <= first_window_step:
        steps = f"{summary.steps} step{'s' * (summary.steps != 1)}"
        by_hand = "" if summary.steps else ", or call ddprof.step() at the end of each step"
        return f"no trace: the job ended after {steps}, before step {first_window_step} (see --skip{by_hand})"
    if not summary.windows and first_window_step is not None:
        return f"no trace: no rank wrote one (see --ranks, and `disabled` in {os.path.join(shown, 'manifest.json')})"
    ranks = f"{len(summary.ranks)} rank{'s' if len(summary.ranks) != 1 else ''}"
    windows = f"{summary.windows} trace{'s' if summary.windows != 1 else ''}"
    return f"{windows} of {ranks} in {shown}{cost}; next: ddprof analyze {shlex.quote(shown)}"


def _of_window(share: float, between: Sequence[float] | None) -> str:
    """Cost of tracing in words; where traced steps were shorter, the others spent time on something else. A few steps,
    or unequal ones, say no more than `between` which shares it is.
    """
    low, high = between or (share, share)
    if high - low > USUAL_MOST:
        return f"{100 * low:+.0f} to {100 * high:+.0f} % inside the trace window, by its few or unequal steps"
    if share < 0:
        return f"steps inside the trace window were {-100 * share:.0f} % shorter: the others were disturbed"
    return f"{100 * share:+.0f} % inside the trace window"


def _utc(at_ns: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_ns / 1e9))


def commit_of(folder: Path) -> str | None:
    """The checked-out commit of the repository around a folder; None where there is none, or it is not a plain one.

    Read from git's files: no process is started, and git need not be there
    (https://git-scm.com/docs/gitrepository-layout).
    """
    for place in (folder, *folder.parents):
        git = place / ".git"
        if git.is_file():  # a worktree: "gitdir: PATH"
            git = place / text_of(git).removeprefix("gitdir:").strip()
        if (git / "HEAD").is_file():
            return _checked_out(git)
    return None


def _checked_out(git: Path) -> str | None:
    head = text_of(git / "HEAD").strip()
    if not head.startswith("ref:"):
        return head if _HASH.fullmatch(head) else None
    name = head.removeprefix("ref:").strip()
    shared = git / text_of(git / "commondir").strip()  # of a worktree; else git itself
    for place in (git, shared):
        commit = text_of(place / name).strip()
        if _HASH.fullmatch(commit):
            return commit
    packed = (line.split() for line in text_of(shared / "packed-refs").splitlines())
    return next((words[0] for words in packed if words[1:] == [name] and _HASH.fullmatch(words[0])), None)
