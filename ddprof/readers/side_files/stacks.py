"""Side files of sampled stacks (`.stacks.jsonl`, docs/run-folder.md) of a rank and its loader's workers.

Unreadable lines and dangling numbers are left out and noted.
"""

from __future__ import annotations

import glob
from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

import msgspec
import numpy as np
from msgspec import Meta, Struct, field
from msgspec.structs import astuple

from ddprof.model import HealthNote
from ddprof.readers.files.opening import UNREADABLE, one_line
from ddprof.readers.files.remote import Names, is_url, starting_with
from ddprof.readers.side_files.lenient import read_lines
from ddprof.tables import Array

_SIDECAR, _STACKS, _WORKERS = ".sidecar.json", ".stacks.jsonl", ".workers.jsonl"
MAX_BYTES = 16 << 20  # of a file, as capture bounds it
MAX_WORKERS = 64  # files of workers, as capture bounds them
MAX_ENTRIES = 1 << 17  # frames, stacks or threads: twice what capture keeps
MAX_ROWS = 1 << 21  # counts or samples: more than fit a file
_START_UP = "start-up"  # the phase of samples before the third step
_TRAINING = 0  # number of the training thread, as in capture/stacks/totals.py
_EFFECT = "samples in it are missing from the lines of the script"

_Number: TypeAlias = Annotated[int, Meta(ge=0, le=1 << 31)]
_Time: TypeAlias = Annotated[int, Meta(ge=0, le=1 << 62)]
_Span: TypeAlias = Annotated[int, Meta(ge=0, le=1 << 53)]  # 104 days
_LineNumber: TypeAlias = Annotated[int, Meta(ge=-1, le=1 << 31)]  # -1: CPython knows none of an instruction
_Outer: TypeAlias = Annotated[int, Meta(ge=-1, le=1 << 31)]


class _Line(Struct, tag_field="kind"):
    """Any line."""


class _Begin(_Line, tag="begin"):
    phases: list[str] = field(default_factory=list)
    worker: _Number | None = None
    path: list[str] = field(default_factory=list)


class _Frames(_Line, tag="frames"):
    frames: list[tuple[str, str, _LineNumber]]
    first: _Number = field(name="from")
    generators: list[_Number] = field(default_factory=list)


class _Sources(_Line, tag="sources"):
    sources: list[str | None]
    first: _Number = field(name="from")


class _Stacks(_Line, tag="stacks"):
    stacks: list[tuple[_Outer, _Number]]
    first: _Number = field(name="from")


class _Threads(_Line, tag="threads"):
    threads: list[tuple[str, _Number | None]]
    first: _Number = field(name="from")


class _Count(Struct, array_like=True):
    stack: _Number
    phase: _Number
    thread: _Number
    samples: _Span
    time_ns: _Span
    late_ns: _Span
    steps: _Span = 1  # at least, where they were not counted


class _Counts(_Line, tag="counts"):
    counts: list[_Count]
    from_ns: _Time = 0
    to_ns: _Time = 0
    last: list[_Time] = field(default_factory=list)  # when the training thread was seen last, and its stack


class _Samples(_Line, tag="samples"):
    at_ns: _Time
    period_ns: _Span
    samples: list[tuple[_Span, _Span, _Span, _Span, _Number, _Number]]


class _Last(_Line, tag="last"):
    """Stacks of all threads when a signal ended the process: pairs of thread and stack."""

    at_ns: _Time = 0
    threads: list[tuple[_Number, _Number]] = field(default_factory=list)


class _End(_Line, tag="end"):
    """The last line, which is not used here."""


_Any: TypeAlias = _Begin | _Frames | _Sources | _Stacks | _Threads | _Counts | _Samples | _Last | _End
_DECODER: msgspec.json.Decoder[_Any] = msgspec.json.Decoder(_Any)


class SampledProcess:
    """Contents of one file. Entries of `stacks` are (outer stack or -1, frame), the outer one earlier.

    `counts`: stack, phase, thread, samples, ns (as `_shared_out` has them), late ns, steps; shape (rows, 7). `samples`:
    unix ns, ns until the thread answered, stack, period ns; in time order, shape (rows, 4).
    """

    def __init__(self) -> None:
        self.worker: int | None = None
        self.phases: list[str] = []
        self.path: list[str] = []
        self.frames: list[tuple[str, str, int]] = []
        self.generators: set[int] = set()  # frames of functions that yield
        self.sources: list[str | None] = []  # of the frames, as far as they were written: the text of the line
        self.stacks: list[tuple[int, int]] = []
        self.threads: list[tuple[str, int | None]] = []
        self._counts: list[tuple[int, ...]] = []
        self._counted: list[tuple[int, int]] = []  # from when to when, of each of them
        self._samples: list[tuple[int, ...]] = []
        self.unfit = 0  # entries that name what is not there
        self._seen_last: tuple[int, int] | None = None

    def take(self, text: bytes) -> None:
        """Add a line. Raises ValueError where it refers to more than such a file can hold."""
        line = _DECODER.decode(text)
        if isinstance(line, _Begin):
            self.worker, self.phases, self.path = line.worker, line.phases, line.path
        elif isinstance(line, _Frames):
            frames = [(file, function, max(number, 0)) for file, function, number in line.frames]
            _put(self.frames, line.first, frames, ("", "...", 0))
            self.generators.update(line.generators[:MAX_ENTRIES])
        elif isinstance(line, _Sources):
            _put(self.sources, line.first, line.sources, None)
        elif isinstance(line, _Stacks):
            _put(self.stacks, line.first, line.stacks, (-1, 0))
        elif isinstance(line, _Threads):
            _put(self.threads, line.first, line.threads, ("", None))
        elif isinstance(line, _Counts):
            self._counted += [(line.from_ns, line.to_ns)] * len(line.counts)
            self._counts += [astuple(count) for count in line.counts]
            if len(line.last) == 2:
                self._seen_last = line.last[0], line.last[1]
        elif isinstance(line, _Last):
            training = [stack for thread, stack in line.threads if thread == _TRAINING]
            self._seen_last = (line.at_ns, training[0]) if training else self._seen_last
        elif isinstance(line, _Samples):
            rows = line.samples
            self._samples += [(line.at_ns + row[0], row[2], row[5], line.period_ns) for row in rows]
        if max(len(self._counts), len(self._samples)) > MAX_ROWS:
            raise ValueError(f"more than {MAX_ROWS} rows")

    def seen_last(self) -> tuple[int, list[tuple[str, str, int]]] | None:
        """The training thread's (of a worker: its main one's) last sample: unix ns and stack as (file, function, line),
        innermost first. None without one. Call `sound` first.
        """
        if self._seen_last is None or self._seen_last[1] >= len(self.stacks):
            return None
        at_ns, stack = self._seen_last
        frames = []
        while stack >= 0:  # a stack is made of earlier ones
            stack, frame = self.stacks[stack]
            frames.append(self.frames[frame])
        return at_ns, frames

    def sound(self) -> None:
        """Leave out entries that name a missing frame or stack."""
        frames = len(self.frames)
        for at, (outer, frame) in enumerate(self.stacks):
            if outer >= at or frame >= frames:
                self.unfit += 1
                self.stacks[at] = (outer if outer < at else -1, frame if frame < frames else 0)
        if not frames:
            self.stacks = []
        counts, samples = _rows(self._counts, 7), _rows(self._samples, 4)
        named, placed = counts[:, 0] < len(self.stacks), samples[:, 2] < len(self.stacks)
        self.unfit += int((~named).sum() + (~placed).sum())
        order = np.argsort(samples[placed][:, 0], kind="stable")
        self.samples: Array = samples[placed][order]
        counts[:, 4] = self._shared_out(counts)
        self.counts: Array = counts[named]

    def _shared_out(self, counts: Array) -> Array:
        """Time (ns) of the rows of `counts`, with the training thread's divided evenly among its timely samples.

        A loop's work is uniform, but its sampling rate depends on the machine's load, so one sample after a long pause
        means no more than any other. Windows and start-up are sampled at their own rates and keep their recorded time.
        """
        time_ns = counts[:, 4].copy()
        counted, (at_ns, *_) = _rows(self._counted, 2), self.samples.T
        in_window = np.searchsorted(at_ns, counted[:, 1], "right") > np.searchsorted(at_ns, counted[:, 0], "left")
        starts = np.isin(counts[:, 1], [number for number, name in enumerate(self.phases) if name == _START_UP])
        for window in (False, True):
            for start in (False, True):
                chosen = (counts[:, 2] == _TRAINING) & (in_window == window) & (starts == start)
                samples, late_ns = counts[chosen, 3], np.minimum(counts[chosen, 5], counts[chosen, 4])
                if samples.sum():
                    each_ns = float((counts[chosen, 4] - late_ns).sum()) / float(samples.sum())
                    time_ns[chosen] = samples * each_ns + late_ns
        return time_ns


def side_files(sidecar_path: str | None, named: Names = starting_with) -> tuple[list[str], list[str]]:
    """Files beside a sidecar: of its loader's fetches (one or none), and of stacks, the rank's own and its workers'.

    `named`: lists the files of a store.
    """
    if sidecar_path is None or not sidecar_path.endswith(_SIDECAR):
        return [], []
    stem = sidecar_path.removesuffix(_SIDECAR)
    fetches, stacks = stem + _WORKERS, stem + _STACKS
    try:
        names = named(stem + ".") if is_url(stem) else glob.glob(f"{glob.escape(stem)}.*")
    except UNREADABLE:
        return [fetches], [stacks]  # whoever reads them says why they cannot be
    of_workers = sorted(name for name in names if name.startswith(f"{stem}.worker") and name.endswith(_STACKS))
    own = [name for name in names if name == stacks]
    return [name for name in names if name == fetches], own + of_workers[:MAX_WORKERS]


def read_stacks(paths: Sequence[str]) -> tuple[list[SampledProcess], list[HealthNote]]:
    """One value per file that could be read, in order, and what was left out."""
    processes, notes = [], []
    for path in paths:
        process = SampledProcess()
        try:
            notes += read_lines(path, process.take, MAX_BYTES, _EFFECT)
        except UNREADABLE as error:
            notes.append(HealthNote(f"{path}: cannot be read: {one_line(error)}", _EFFECT))
            continue
        process.sound()
        if process.unfit:
            issue = f"{path}: {process.unfit} entries name stacks that are not in it"
            notes.append(HealthNote(issue, _EFFECT, "info"))
        processes.append(process)
    return processes, notes


def _put(entries: list[Any], first: int, new: Sequence[Any], missing: Any) -> None:
    """Write entries from a number on; numbers skipped by a lost line become `missing`."""
    if first + len(new) > MAX_ENTRIES:
        raise ValueError(f"more than {MAX_ENTRIES} entries of one kind")
    entries.extend([missing] * (first - len(entries)))
    entries[first : first + len(new)] = new


def _rows(rows: Sequence[tuple[int, ...]], columns: int) -> Array:
    return np.array(rows, np.int64).reshape(-1, columns)
