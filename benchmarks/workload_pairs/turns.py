"""Several endless jobs take turns on one machine: one runs, the others are held where they are."""

from __future__ import annotations

import math
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.workload_pairs.kept_records import keep_turns, whole_periods
from benchmarks.workload_pairs.processes import Processes
from ddprof.averages import middle_half

LAPS, OUTPUT = "laps.txt", "output.txt"
LEAST_ROUNDS, MOST_ROUNDS = 6, 12
MEASURED_S = 10.0  # of each job, in between
DISTURBED = 2.0  # times the usual share of time that other machines take from this one: such a round does not count
LEAST_STOLEN = 0.02  # below this share nobody is disturbed
PERIOD_STEPS = 4  # every fault repeats within so many steps
TURN_PERIODS = 1  # whole periods that a turn has at least room for
MIN_TURN_S = 0.8
START_S = 300.0
_POLL_S = 0.05

Laps = np.ndarray[Any, np.dtype[np.int64]]  # (steps, 2): start and end, ns on the monotonic clock


@dataclass
class Turns:
    """A job's own measurement: mean step of each of its turns that count, and the interquartile mean over them; None
    with the `problem` that it had. `stolen`: of each round, the share of time that other machines took from this.
    """

    step_ms: float | None = None
    turns_ms: list[float] = field(default_factory=list)
    stolen: list[float] = field(default_factory=list)
    problem: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


class Contender:
    """One of the jobs. It writes its laps into its folder."""

    def __init__(self, line: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        with open(folder / OUTPUT, "wb") as output:
            self.processes = Processes(
                subprocess.Popen(
                    list(line), env=dict(environment), stdout=output, stderr=subprocess.STDOUT, start_new_session=True
                )
            )
        self.turns: list[tuple[int, int]] = []  # ns
        self.turn_s = MIN_TURN_S
        self.held_at_ns = 0  # since the epoch

    def begin(self, steps: int) -> str:
        """Let it run alone for so many steps, then hold it. Returns why it did not get there, else ""."""
        until = time.monotonic() + START_S
        while len(laps := self.laps()) < steps:
            if not self.processes.running:
                return f"ended with exit code {self.processes.root.returncode}: {self._error_line()}"
            if time.monotonic() > until:
                return f"not {steps} steps after {START_S:.0f} s"
            time.sleep(_POLL_S)
        self.processes.stop()
        self.held_at_ns = time.time_ns()
        recent_ns = (laps[:, 1] - laps[:, 0])[-PERIOD_STEPS * 4 :]
        step_s = float(np.quantile(recent_ns, 0.25)) / 1e9  # some of them wrote the trace, or waited for that
        self.turn_s = max(MIN_TURN_S, (PERIOD_STEPS * (TURN_PERIODS + 1) + 2) * step_s)
        return ""

    def turn(self) -> None:
        """Its turn."""
        begun = time.monotonic_ns()
        self.processes.resume()
        time.sleep(self.turn_s)
        ended = time.monotonic_ns()
        self.processes.stop()
        self.turns.append((begun, ended))

    def end(self, stolen: Sequence[float]) -> Turns:
        """End the job. What sidecars and loader workers wrote of being held and of disturbed rounds goes."""
        self.turns = [turn for turn, calm in zip(self.turns, undisturbed(stolen), strict=False) if calm]
        alive = self.processes.running
        laps = self.laps()
        epoch_ns = time.time_ns() - time.monotonic_ns()
        self.processes.end()
        turns = [(begun + epoch_ns, ended + epoch_ns) for begun, ended in self.turns]
        keep_turns(self.folder, self.held_at_ns, turns, PERIOD_STEPS)
        found = [mean for turn in self.turns if (mean := mean_ms(laps, *turn)) is not None]
        if not alive or not found:
            return Turns(
                problem=f"ended in the middle: {self._error_line()}" if not alive else "too few steps in a turn"
            )
        times = np.array(found)
        return Turns(float(times[middle_half(times)].mean()), found, list(stolen))

    def laps(self) -> Laps:
        """Its steps so far."""
        try:
            text = (self.folder / LAPS).read_text(encoding="ascii")
        except FileNotFoundError:
            return np.empty((0, 2), np.int64)
        whole = text[: text.rfind("\n") + 1]
        return np.array(whole.split(), np.int64).reshape(-1, 2)

    def _error_line(self) -> str:
        lines = (self.folder / OUTPUT).read_text(encoding="utf-8", errors="replace").splitlines()
        return next((line.strip() for line in lines if "Error" in line), "no error line")


def take_turns(
    lines: Sequence[Sequence[str]],
    folders: Sequence[Path],
    environment: Mapping[str, str],
    first: int,
    rounds: int | None = None,
) -> list[Turns]:
    """Start each command alone for its `first` steps, then let them run in turn; one that fails is left out.

    `rounds`: as many as give each job MEASURED_S, within limits, where None.

    A single job has nobody to take turns with: what it does is held against nothing.
    """
    contenders: list[Contender] = []
    problems: list[str] = []
    stolen: list[float] = []
    try:
        for line, folder in zip(lines, folders, strict=True):
            contenders.append(Contender(line, folder, environment))
            problems.append(contenders[-1].begin(first))
        able = [c for c, problem in zip(contenders, problems, strict=True) if not problem]
        for number in range((rounds or _rounds(able)) if len(lines) > 1 else 1):
            before = _cpu_ticks()
            for contender in able if number % 2 == 0 else able[::-1]:
                contender.turn()
            stolen.append(_stolen_share(before, _cpu_ticks()))
    finally:
        ended = [contender.end(stolen) for contender in contenders]
    return [Turns(problem=problem) if problem else turns for problem, turns in zip(problems, ended, strict=True)]


def _rounds(contenders: Sequence[Contender]) -> int:
    longest_s = max((contender.turn_s for contender in contenders), default=MEASURED_S)
    return min(max(math.ceil(MEASURED_S / longest_s), LEAST_ROUNDS), MOST_ROUNDS)


def undisturbed(stolen: Sequence[float]) -> list[bool]:
    """Rounds that count: those in which others took no more than twice the usual share of the machine's time."""
    most = max(LEAST_STOLEN, DISTURBED * float(np.median(stolen))) if stolen else 0.0
    return [share <= most for share in stolen]


def _cpu_ticks() -> tuple[int, int]:
    """(all, stolen) clock ticks of all cores so far; (0, 0) where the system does not say (Linux does: man 5 proc)."""
    try:
        with open("/proc/stat", encoding="ascii") as stream:
            ticks = [int(text) for text in stream.readline().split()[1:9]]
    except OSError:
        return 0, 0
    return sum(ticks), ticks[-1]


def _stolen_share(before: tuple[int, int], after: tuple[int, int]) -> float:
    return (after[1] - before[1]) / max(1, after[0] - before[0])


def mean_ms(laps: Laps, begun_ns: int, ended_ns: int) -> float | None:
    """Mean step of a turn over whole periods, the median of them: a fault of every other step counts for what it is, a
    hiccup of the machine does not. The first whole step is left out: it finds cold caches and what waited for it. None
    below one period.
    """
    inside = laps[(laps[:, 0] >= begun_ns) & (laps[:, 1] <= ended_ns)]
    kept = inside[whole_periods(len(inside), PERIOD_STEPS)]
    if not len(kept):
        return None
    steps = (kept[:, 1] - kept[:, 0]) / 1e6
    return float(np.median(steps.reshape(-1, PERIOD_STEPS).mean(axis=1)))
