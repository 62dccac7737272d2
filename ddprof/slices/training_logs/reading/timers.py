"""Lines of timers: Megatron's in its forms (`--timing-log-option` max, minmax, all; an older one), DeepSpeed's, and the
phases of reinforcement learning as DeepSpeed-Chat, verl and NeMo-RL write them.

    (min, max) time across ranks (ms):
        forward-backward ...............................: (26094.39, 26095.09)
    max time across ranks (ms):
        optimizer ......................................: 3409.92
    times across ranks (ms):
      forward-compute:
         rank  0: 812.20
    time (ms) | forward-compute: 31.57 | backward-compute: 41.76 | batch-generator: 5.24
    [Rank 0] rank=0 time (ms) | fwd: 27.46 | bwd: 73.60 | bwd_inner: 51.05 | bwd_allreduce: 22.50 | step: 72.60
    |E2E latency=3.84s |Gather latency=0.00s (0.00%) |Generate time=2.55s (66.29%) |Training time=1.07s ...
      • generation: 32.82s (73.4%)
    bwd latency:                                                  458.55 ms
    step:3 - ... - timing_s/gen:40.1 - timing_s/update_actor:31.0 - timing_s/step:98.5
    Data time: 0.00s (0.19%), forward time: 0.920s (52.18%), backward time: 0.292s (16.56%), metrics time: ...
    get_train_batch           |  0.0094398            |  28.329      (Lightning's SimpleProfiler: mean and total, in s)
    Profile stats for: run_training_batch                             (its AdvancedProfiler, above rows of functions)

`max` writes the same heading as `minmax` in the releases of 2023, so that the rows alone tell them apart.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache

from ddprof.readers.numbers import one_rank
from ddprof.slices.training_logs.model import DATA, RankReading, TimerReading
from ddprof.slices.training_logs.reading.lines import LogLine, time_ms

_HEAD = re.compile(r"(?:\(min, max\)|max) time across ranks \(ms\):")
_ALL_HEAD = re.compile(r"(?<!\w)times across ranks \(ms\):")
_NUMBER = r"\d{1,12}\.\d\d"
_ROW = re.compile(
    rf"(?P<name>[\w/-]{{1,100}}) \.*: (?:\((?P<least>{_NUMBER}), (?P<most>{_NUMBER})\)|(?P<alone>{_NUMBER})(?=\s*$))"
)
_NAME = re.compile(r"^\s*(?P<name>[\w/-]{1,100}):\s*$")
_RANK = re.compile(rf"^\s*rank\s+(?P<rank>\d{{1,7}}): (?P<ms>{_NUMBER})\s*$")
_FLAT = re.compile(r"(?:\brank=(?P<rank>\d{1,7}) )?(?<!\w)time \(ms\) \|(?P<rest>.*)")
_WHO = re.compile(r"\[Rank (?P<rank>\d{1,7})\]")
_CHAT = "Gather latency|Generate time|Training time|Others"
_S = r"(?P<time>\d[\d.]{0,20})"
_SHARE = r"(?P<unit>s) \(\d[\d.]{0,6} ?%\)"
# What stands in a line of phases, who writes it, and each of them
_PHASES = (
    ("|E2E latency=", "DeepSpeed", re.compile(rf"\|(?P<name>{_CHAT})={_S}(?P<unit>)")),
    ("timing_s/", "verl", re.compile(rf"\btiming_s/(?P<name>(?!step\b)\w{{1,60}}):{_S}(?P<unit>)")),
    ("• ", "NeMo-RL", re.compile(rf"• (?P<name>[\w/]{{1,80}}): {_S}{_SHARE}")),
    (" latency: ", "DeepSpeed", re.compile(rf"^(?P<name>fwd|bwd|step) latency: {{1,80}}{_S} (?P<unit>[mu]?s)\b")),
)
_PART = re.compile(rf"(?:^|(?<=, ))(?P<name>[A-Za-z][\w -]{{0,40}}?)(?: time)?: {_S} ?{_SHARE}")
_FEWEST_PARTS = 3
# Beside hooks, and what holds an epoch or the whole fit
_ACTION = (
    r"(?:\[\w{1,40}\][\w.]{0,60}\.)?(?P<name>get_train_batch|train_dataloader_next|run_training_batch|training_step"
    r"|training_step_and_backward|model_forward|model_backward|backward|optimizer_step)\w{0,40}"
)
_LIGHTNING = re.compile(rf"^\|?\s{{0,4}}{_ACTION}\s{{1,200}}\|\s{{1,8}}(?P<s>\d[\d.e-]{{0,20}})\s{{1,40}}\|")
ADVANCED = re.compile(rf"Profile stats for: {_ACTION}(?: rank: \d{{1,7}})?\s*$")
_PROFILE_S = re.compile(r"^ +\d{1,18} function calls .{0,80}?in (?P<s>\d{1,12}\.\d{1,9}) seconds")
_CALLS = re.compile(r"^ *(?:\d{1,18}/)?(?P<calls>\d{1,18}) +\d")  # of a function, without those it makes of itself
_LIGHTNING_NAMES = dict.fromkeys(("get_train_batch", "train_dataloader_next"), DATA)
WORDS = (
    *("%), ", "Mean duration (s)", "Profile stats for: ", "across ranks (ms)", "time (ms) |", "timing_s/"),
    *("|E2E latency=", "• ", " latency: "),
)
_EACH_MS = {"": 1e3, "s": 1e3, "ms": 1.0, "us": 1e-3}
_MOST_BETWEEN = 100  # lines of other ranks between two rows
MICROSTEP = "_microstep"
_DEEPSPEED = re.compile(
    r"(?:forward|backward|fwd|bwd|step|optimizer|pipe)_[a-z_]+|fwd|bwd|forward|backward|step|batch_input"
)


class TimerLines:
    """Collects timers from the lines of one log, separately for the ranks that share a file."""

    def __init__(self) -> None:
        self.readings: list[TimerReading] = []
        self.by_rank: list[RankReading] = []
        self.writers: set[str] = set()
        self.open: dict[str, tuple[str, int]] = {}  # who -> the kind of block that its next lines are of, its number
        self._timer: dict[str, str] = {}  # who -> the timer that its next ranks, or functions, are of
        self._spent_s = 0.0  # of the action whose functions follow
        self._blocks: Counter[str] = Counter()
        self._since = 0  # lines since the last row

    @property
    def are_there(self) -> bool:
        """True where timers have begun."""
        return bool(self.readings or self.by_rank or self.open)

    @property
    def reads_on(self) -> bool:
        """True where the next lines may be timers."""
        return bool(self.open) and self._since < _MOST_BETWEEN

    def take(self, line: LogLine) -> None:
        """Read the next line."""
        who, _, text = line
        if "across ranks (ms)" in text:
            self._begin(who, text)
        elif "time (ms) |" in text and (flat := _FLAT.search(text)) is not None:
            self.open.pop(who, None)
            self._flat(who, text, flat)
        elif phases := [(of, one) for word, of, form in _PHASES if word in text for one in form.finditer(text)]:
            for writer, phase in phases:
                self._add(writer, phase["name"], time_ms(phase["time"], _EACH_MS[phase["unit"]]))
        elif "Mean duration (s)" in text:
            self._open(who, "actions")
        elif "Profile stats for: " in text:
            self.open.pop(who, None)
            if (action := ADVANCED.search(text)) is not None:
                self._open(who, "functions")
                self._timer[who] = action["name"]
        elif who in self.open:
            self._go_on(who, text)
        elif "%)" in text and len(parts := list(_PART.finditer(text))) >= _FEWEST_PARTS:
            for part in parts:
                name = part["name"].lower().replace(" ", "-")
                self._add("", DATA if name.startswith("data") else name, time_ms(part["time"], 1e3))

    def _open(self, who: str, kind: str) -> None:
        self._blocks[kind] += 1
        self.open[who], self._since = (kind, self._blocks[kind]), 0

    def _add(self, writer: str, name: str, ms: float | None) -> None:
        if ms is not None:
            self.readings.append(TimerReading(name, ms))
            self.writers.update({writer} - {""})

    def _action(self, name: str, ms: float | None) -> None:
        self._add("Lightning", _LIGHTNING_NAMES.get(name, name), ms)

    def _begin(self, who: str, text: str) -> None:
        kind = "rows" if _HEAD.search(text) else "ranks" if _ALL_HEAD.search(text) else ""
        if kind:
            self._open(who, kind)
            self._timer.pop(who, None)
            self._rows(text.split("across ranks (ms):", 1)[1])

    def _go_on(self, who: str, text: str) -> None:
        kind, block = self.open[who]
        self._since += 1
        if kind == "rows":
            if not self._rows(text) and " iteration " in text:
                del self.open[who]
        elif kind == "actions":
            if (row := _LIGHTNING.match(text)) is not None:
                self._action(row["name"], time_ms(row["s"], 1e3))
        elif kind == "functions":
            if (profile := _PROFILE_S.match(text)) is not None:
                self._spent_s = float(profile["s"])
            elif (first := _CALLS.match(text)) is not None:  # the outermost function, once for each action
                del self.open[who]
                self._action(self._timer.pop(who), self._spent_s * 1e3 / max(1, int(first["calls"])))
        elif (match := _RANK.match(text)) is not None and who in self._timer:
            rank, ms = one_rank(match["rank"]), time_ms(match["ms"])
            self._since = 0
            if rank is not None and ms is not None:
                self.by_rank.append(RankReading(self._timer[who], block, rank, ms))
                self.writers.add("Megatron")
        elif (named := _NAME.match(text)) is not None:
            self._timer[who] = named["name"]
        else:
            del self.open[who]

    def _rows(self, text: str) -> bool:
        match = None
        for match in _ROW.finditer(text):
            longest, shortest = time_ms(match["most"] or match["alone"]), time_ms(match["least"])
            if longest is not None:
                self._since = 0
                self.readings.append(TimerReading(match["name"], longest, shortest, True))
                self.writers.add("Megatron")
        return match is not None

    def _flat(self, who: str, text: str, match: re.Match[str]) -> None:
        """Add timers of one line; DeepSpeed's of micro steps are parts of those of the step, which it logs too."""
        marked = _WHO.search(text)
        rank = one_rank(match["rank"] or (marked["rank"] if marked else None))
        parts = [part.partition(":") for part in match["rest"].split("|")]
        # Megatron wrote "batch generator" until 2021, "batch-generator" since.
        said = [(key.strip().replace(" ", "-"), time_ms(value.strip())) for key, colon, value in parts if colon]
        block = f"{who}/{rank}/{next((key for key, _ in said), '')}"
        self._blocks[block] += 1
        for name, ms in said:
            self._add(_writer(name), name, ms)
            if ms is not None and rank is not None:
                self.by_rank.append(RankReading(name, self._blocks[block], rank, ms))


@lru_cache(maxsize=256)
def _writer(name: str) -> str:
    """The framework that names a timer so, where all stand in one line."""
    return "DeepSpeed" if _DEEPSPEED.fullmatch(name) else "Megatron"


def without_microsteps(readings: list[TimerReading]) -> list[TimerReading]:
    """Readings without micro-step timers that exist for the whole step too."""
    names = {reading.name for reading in readings}
    parts = {name for name in names if name.endswith(MICROSTEP) and name.removesuffix(MICROSTEP) in names}
    return [reading for reading in readings if reading.name not in parts]
