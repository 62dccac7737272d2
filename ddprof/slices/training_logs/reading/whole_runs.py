"""Parts of a whole run as a log states them: MLPerf's events, and the totals that torchvision's logger prints.

:::MLLOG {"namespace": "", "time_ms": 1696158533889, "event_type": "...", "key": "eval_start", "value": 1, "metadata": {
:::MLL 1556733699.711 eval_start: {"value": null, "metadata": {"lineno": 65}}
Test: Total time: 0:00:02 (0.7452 s / it)
... | train_inner | epoch 001: 2900 / 160368 loss=8.979, ..., num_updates=2900, ..., train_wall=13, wall=1265
"""

from __future__ import annotations

import re
from itertools import pairwise

from ddprof.readers.numbers import one_float
from ddprof.slices.training_logs.model import LoggedRun
from ddprof.slices.training_logs.reading.iterations import LoggedRecord
from ddprof.slices.training_logs.reading.lines import EVALUATION

BENCHMARK = "MLPerf"
_EVENT = re.compile(
    r":::MLL(?:OG \{.{0,80}?\"time_ms\": (?P<ms>\d{1,15}),.{0,80}?\"key\": \"(?P<key>\w{1,80})\", "
    r"| (?P<s>\d{1,12}\.\d{1,9}) (?P<name>\w{1,80}): \{)\"value\": (?P<value>.{1,2000}?), \"metadata\": "
    r"(?P<metadata>.*)"
)
_STEP = re.compile(r'"step(?:_num)?": (?P<number>\d{1,12}(?:\.\d{1,20})?)')
_TIME = re.compile(r'"train_step_timing": (?P<s>\d[\d.e+-]{0,24})')
_RATE = re.compile(r'"(?:throughput|imgs_sec)": (?P<rate>\d[\d.e+-]{0,24})')
_LIKE = (2 / 3, 3 / 2)  # the time between two rates holds evaluations, and no rate is of one of several devices
_STATUS = re.compile(r'"status": "(?P<status>\w{1,40})"')
_WALLS = re.compile(r" train_wall=(?P<steps>\d{1,9})(?=,).* wall=(?P<all>\d{1,9})$")  # fairseq's, in seconds
_TOTAL = re.compile(r"(?P<of>[\w :\[\]]{0,60})Total time: (?:(?P<d>\d+) days?, )?(?P<h>\d+):(?P<m>\d\d):(?P<s>\d\d)")


class RunLines:
    """Collects such lines of one log."""

    def __init__(self) -> None:
        self.records: list[LoggedRecord] = []
        self.are_there = False  # events of a benchmark
        self.status = ""  # with which the benchmark ended
        self._batch = 0.0
        self._samples = 0.0  # of an epoch
        self._rated = 0.0, 0.0  # ms and steps, epochs or samples at the last rate
        self._open: dict[str, float] = {}  # interval -> ms of its start
        self._spans: dict[str, list[tuple[float, float]]] = {"init": [], "run": [], "eval": []}
        self._walls: list[tuple[int, int]] = []  # s in steps since the line before, s since the start
        self._totals_ms: dict[bool, list[float]] = {False: [], True: []}  # by whether they are of an evaluation

    def take(self, text: str) -> bool:
        """Read the next line; True where it is of an iteration."""
        if ":::MLL" in text and (event := _EVENT.search(text)) is not None:
            return self._event(event)
        if "Total time: " in text and (total := _TOTAL.search(text)) is not None:
            hours = int(total["d"] or 0) * 24 + int(total["h"])
            ms = (hours * 60 + int(total["m"])) * 6e4 + int(total["s"]) * 1e3
            self._totals_ms[EVALUATION.search(total["of"]) is not None].append(ms)
        if " train_wall=" in text and (walls := _WALLS.search(text)) is not None:
            self._walls.append((int(walls["steps"]), int(walls["all"])))
        return False

    def _event(self, event: re.Match[str]) -> bool:
        self.are_there = True
        key = event["key"] or event["name"]
        at_ms = float(event["s"]) * 1e3 if event["s"] else float(event["ms"])
        what, _, end = key.rpartition("_")
        if key == "run_start":
            self._rated = at_ms, 0.0
        if what in self._spans and end == "start":
            self._open.setdefault(what, at_ms)  # each rank may state it
        elif what in self._spans and end == "stop" and what in self._open:
            self._spans[what].append((self._open.pop(what), at_ms))
            self.status = (status["status"] if (status := _STATUS.search(event["metadata"])) else "") or self.status
        elif key == "global_batch_size":
            self._batch = one_float(event["value"]) or 0.0
        elif key == "train_samples":
            self._samples = one_float(event["value"]) or 0.0
        elif key == "tracked_stats":
            return self._iteration(event, at_ms)
        return False

    def _iteration(self, event: re.Match[str], at_ms: float) -> bool:
        timed, rate = _TIME.search(event["value"]), _RATE.search(event["value"])
        seconds = one_float(timed["s"]) if timed else None
        step = _STEP.search(event["metadata"])
        at = one_float(step["number"]) or 0.0 if step else 0.0
        if rate is not None and (per_s := one_float(rate["rate"])) and self._is_of_all(per_s, at_ms, at):
            seconds = self._batch / per_s
        self._rated = at_ms, at
        if seconds:
            self.records.append(LoggedRecord(round(at) or len(self.records) + 1, seconds * 1e3, None))
        return bool(seconds)

    def _is_of_all(self, per_s: float, at_ms: float, at: float) -> bool:
        """True where a rate makes the samples that the steps, epochs or samples since the last one hold."""
        before_ms, before = self._rated
        made = per_s * (at_ms - before_ms) / 1e3
        units = (self._batch, self._samples, 1.0)
        return any(
            _LIKE[0] * made <= (at - before) * unit <= _LIKE[1] * made for unit in units if made > 0 < self._batch
        )

    def run(self) -> LoggedRun | None:
        """The whole run; None where the log does not state it."""
        tests, trains = self._totals_ms[True], self._totals_ms[False]
        if self._spans["run"]:
            begin, end = self._spans["run"][0][0], self._spans["run"][-1][1]
            tests = [b - a for a, b in self._spans["eval"] if begin <= a and b <= end]
            before_ms = sum(b - a for a, b in self._spans["init"] if b <= begin)
            return LoggedRun(end - begin, len(tests), sum(tests), before_ms)
        # Releases before 0.10 print the sum since the start
        if self._walls and all(steps <= b - a + 1 for (_, a), (steps, b) in pairwise(self._walls)):
            within_s, span_s = sum(steps for steps, _ in self._walls[1:]), self._walls[-1][1] - self._walls[0][1]
            return LoggedRun(span_s * 1e3, beside_ms=(span_s - within_s) * 1e3) if span_s > 0 else None
        return LoggedRun(sum(tests) + sum(trains), len(tests), sum(tests)) if tests and trains else None
