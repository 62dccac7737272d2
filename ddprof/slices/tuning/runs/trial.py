"""One run of the user's command under `ddprof run`, ended after the planned steps, with all of its processes."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddprof.capture.launcher.chores import wait_or_kill
from ddprof.settings.fixes_file import write_fixes
from ddprof.slices.tuning.runs import evidence
from ddprof.trials.document import RunPlan, Trial, TrialCandidate
from ddprof.untrusted.secrets import masked

ENVIRONMENT = "DDPROF_TRIAL"
RUN, LOG, FIXES, WORK = "run", "log.txt", "FIXES.toml", "work"
TOO_FEW_STEPS = "ended before enough steps were timed on every rank"
_KEEPER = Path(__file__).with_name("keeper.py")
_TICK_S = 0.5
_CLOSING_S = 40.0  # the keeper needs at most its own patience
_NO_WINDOW = 1 << 40  # a step that no run reaches


@dataclass(frozen=True)
class Window:
    """The trace window of the diagnosis."""

    skip: int
    steps: int


@dataclass(frozen=True)
class TrialOrder:
    """A run to make: its folder, the candidates to apply, and its time limit."""

    label: str
    folder: Path
    command: tuple[str, ...]
    plan: RunPlan
    settings: tuple[TrialCandidate, ...] = ()
    timeout_s: float = 3600.0
    window: Window | None = None


def run(order: TrialOrder, tick: Callable[[], None] = lambda: None) -> Trial:
    """Make the run, of which no process remains; `tick` is called twice a second. Raises OSError without its folder."""
    (order.folder / WORK).mkdir(parents=True, exist_ok=True)
    began_s = time.monotonic()
    ended = _kept(order, tick)
    _mask(order.folder / LOG)
    return _told(order, ended, time.monotonic() - began_s)


def _kept(order: TrialOrder, tick: Callable[[], None]) -> dict[str, Any]:
    keeper = subprocess.Popen(
        [sys.executable, str(_KEEPER), f"{order.timeout_s:.0f}", str(order.folder / LOG), *_command(order)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, ENVIRONMENT: str(order.folder / WORK)},
        start_new_session=True,
    )
    assert keeper.stdin is not None and keeper.stdout is not None
    try:
        while not select.select([keeper.stdout], [], [], _TICK_S)[0]:
            tick()
        answer = keeper.stdout.readline()
    finally:
        with suppress(OSError):
            keeper.stdin.close()
        wait_or_kill(keeper, _CLOSING_S)
        keeper.stdout.close()
    try:
        result = json.loads(answer)
    except ValueError:
        return {"why": "lost", "code": None, "left": 0}
    return result if isinstance(result, dict) else {}


def _mask(log: Path) -> None:
    """The job's own output without secrets."""
    fresh = log.with_name(f".{LOG}")
    fresh.touch(0o600)
    with suppress(FileNotFoundError), log.open(errors="surrogateescape", newline="") as lines:
        with fresh.open("w", errors="surrogateescape", newline="") as sink:
            sink.writelines(map(masked, lines))
        os.replace(fresh, log)


def _command(order: TrialOrder) -> list[str]:
    window = order.window or Window(_NO_WINDOW, 1)
    options = ["--run-dir", str(order.folder / RUN), "--end-after", str(order.plan.last)]
    options += ["--skip", str(window.skip), "--steps", str(window.steps)]
    if order.window is None:
        options.append("--no-stacks")
    if order.settings:
        path = order.folder / FIXES
        path.write_text(write_fixes([(candidate.fix, "") for candidate in order.settings]), encoding="utf-8")
        options += ["--apply", str(path)]
        if any(candidate.changes_numbers for candidate in order.settings):
            options.append("--allow-numerics")
    return [sys.executable, "-m", "ddprof.cli.main", "run", *options, "--", *order.command]


def _told(order: TrialOrder, ended: dict[str, Any], took_s: float) -> Trial:
    folder = order.folder / RUN
    ranks = evidence.ranks_left(folder)
    steps_us = evidence.job_steps_us(ranks, order.plan)
    step_us = evidence.run_step_us(steps_us)
    peak_bytes, device_bytes = evidence.memory(ranks)
    failed = _failed(order, ended, step_us is not None and len(ranks) == evidence.manifest_of(folder).world_size)
    return Trial(
        label=order.label,
        settings=tuple(candidate.name for candidate in order.settings),
        folder=order.folder.name,
        took_s=round(took_s, 3),
        steps=evidence.steps_made(ranks),
        step_us=None if failed else step_us,
        steps_us=tuple(round(value, 1) for value in steps_us),
        failed=failed,
        note=_note(ended) if not failed else "",
        held=evidence.held_by_rank(ranks, order.plan),
        peak_bytes=peak_bytes,
        device_bytes=device_bytes,
    )


def _failed(order: TrialOrder, ended: dict[str, Any], is_timed: bool) -> str:
    why, code = ended.get("why"), ended.get("code")
    if why == "timeout":
        return f"hangs: not over after {order.timeout_s:.0f} s, the longest baseline several times over"
    if why == "lost":
        return "the process that kept it was killed"
    if code:
        return evidence.reason(order.folder / LOG, code)
    rows = evidence.manifest_of(order.folder / RUN).applied
    for candidate in order.settings:
        why_not = evidence.not_applied(rows, candidate.values)
        if why_not:
            return f"not applied: {why_not}"
    return "" if is_timed else TOO_FEW_STEPS


def _note(ended: dict[str, Any]) -> str:
    left = ended.get("left") or 0
    return f"{left} process{'es' * (left > 1)} of the job had to be ended after it" if left else ""
