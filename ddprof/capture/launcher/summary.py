"""Summary of the ranks' sidecars for the manifest, outcomes of the settings that they were to apply included."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from statistics import median
from typing import Any

from msgspec import MsgspecError, Struct
from msgspec.json import Decoder
from msgspec.structs import asdict

from ddprof.capture.files.layout import LARGEST_RANK, SIDECAR_SUFFIX, parse_stem
from ddprof.capture.files.step import PHASE_NAMES
from ddprof.capture.files.storage import MAX_JSON_BYTES, names_in
from ddprof.settings.wanted import shown
from ddprof.sidecar import Count, Rank, Real, StepTimes, Whole
from ddprof.sidecar.applied import SettingOutcome, merged
from ddprof.untrusted.regular_files import read_bounded

_WARM_STEPS = 2  # at the start of a run: lazy initialisation, DDP's first bucket order
_PHASES = tuple(f"{name}_ns" for name in PHASE_NAMES)
_MAX_SAID = 6


class _Window(Struct):
    trace_path: str | None = None
    export_pause_ns: Whole | None = None


class _Overhead(Struct):
    bare_step_ns: Whole | Real | None = None
    profiled_step_ns: Whole | Real | None = None
    own_ns_per_step: Whole | Real | None = None
    stacks_frac: Real | None = None
    stacks_window_frac: Real | None = None
    bare_range_ns: tuple[Whole | Real, Whole | Real] | None = None
    profiled_range_ns: tuple[Whole | Real, Whole | Real] | None = None


class _SidecarExtract(Struct):
    """Values of a sidecar that the manifest uses. Rank and host are in the file's name."""

    world_size: Rank | None = None
    steps_total: Count | None = None
    versions: dict[str, Any] | None = None
    overhead: _Overhead | None = None
    steps: list[StepTimes] | None = None
    windows: list[_Window] | None = None
    notes: list[str] | None = None
    applied: list[SettingOutcome] | None = None


_DECODER = Decoder(_SidecarExtract)


@dataclass(frozen=True)
class RunSummary:
    """Totals over the ranks' files."""

    ranks: tuple[int, ...] = ()
    world_size: int | None = None
    hosts: dict[int, str] = field(default_factory=dict)
    windows: int = 0
    steps: int = 0  # of the rank that made most
    versions: dict[str, Any] = field(default_factory=dict)
    overhead: dict[str, Any] = field(default_factory=lambda: _overhead([]))
    # rank -> median of its steps outside windows, phase by phase, ns
    step_times: dict[int, dict[str, int]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    applied: tuple[dict[str, Any], ...] = ()  # what became of the settings that the ranks were to apply


def summarize(folder: Path) -> RunSummary:
    """Read every sidecar of the folder. A damaged one gives only rank and host, with a note."""
    hosts: dict[int, str] = {}
    step_times: dict[int, dict[str, int]] = {}
    notes: dict[str, list[int]] = {}
    read: list[_SidecarExtract] = []
    applied: list[tuple[int, list[SettingOutcome]]] = []
    for path in names_in(folder, SIDECAR_SUFFIX):
        fields = parse_stem(path.name)
        if fields is None or int(fields["rank"] or 0) > LARGEST_RANK:
            continue
        rank = int(fields["rank"] or 0)
        hosts[rank] = str(fields["host"])
        try:
            content = _extract(path)
        except (OSError, ValueError) as error:
            reason = f"{path.name}: {error.strerror}" if isinstance(error, OSError) else str(error)
            notes.setdefault(f"{reason}: its steps, windows and overhead are not in this manifest", []).append(rank)
            continue
        read.append(content)
        applied.append((rank, content.applied or []))
        step_times[rank] = _step_times(content.steps or [])
        for note in content.notes or []:
            notes.setdefault(note, []).append(rank)
    sizes = Counter(content.world_size for content in read if content.world_size)
    return RunSummary(
        ranks=tuple(sorted(hosts)),
        world_size=max(sizes, key=lambda size: (sizes[size], size), default=None),
        hosts=hosts,
        windows=sum(bool(window.trace_path) for content in read for window in content.windows or []),
        steps=max((content.steps_total or 0 for content in read), default=0),
        versions=next((dict(content.versions) for content in reversed(read) if content.versions), {}),
        overhead=_overhead(read),
        step_times={rank: times for rank, times in sorted(step_times.items()) if times},
        notes=tuple(f"{note} (ranks {','.join(map(str, ranks))})" for note, ranks in notes.items()),
        applied=tuple({**asdict(row), "ranks": list(ranks)} for row, ranks in merged(applied)),
    )


def _export_pause_ns(content: _SidecarExtract) -> int | None:
    """Median pause after a rank's windows, in which their traces are written; None without one."""
    pauses_ns = [window.export_pause_ns for window in content.windows or [] if window.export_pause_ns]
    return int(median(pauses_ns)) if pauses_ns else None


def _extract(path: Path) -> _SidecarExtract:
    """Raises OSError, or ValueError on a damaged sidecar; the message names the file."""
    try:
        return _DECODER.decode(read_bounded(path, MAX_JSON_BYTES))
    except (MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(f"{path.name}: damaged: {error}") from None


def _step_times(steps: list[StepTimes]) -> dict[str, int]:
    """Medians over the unprofiled steps, without the warm-up and the last one (it may be truncated); {} without any.

    Nothing else is known of a rank that opens no window. `rest_ns` is the median of a step's time outside phases: on a
    busy machine the medians of steps and of phases come from different steps, and their difference is no step's time.
    """
    unprofiled = [(length, step) for step in steps[_WARM_STEPS:-1] if not step.profiled and (length := step.length_ns)]
    if not unprofiled:
        return {}
    lengths = [length for length, _ in unprofiled]
    phases = [[getattr(step, name) or 0 for name in _PHASES] for _, step in unprofiled]  # 0: not seen
    medians = {name: int(median(column)) for name, column in zip(_PHASES, zip(*phases, strict=True), strict=True)}
    rest = median(max(0, length - sum(phases_ns)) for length, phases_ns in zip(lengths, phases, strict=True))
    return {"step_ns": int(median(lengths)), **medians, "rest_ns": int(rest)}


def _overhead(read: list[_SidecarExtract]) -> dict[str, Any]:
    """The worst rank's overhead in each respect: a job is as slow as its slowest rank."""
    overheads = [content.overhead or _Overhead() for content in read]
    pauses_ns = [pause_ns for content in read if (pause_ns := _export_pause_ns(content)) is not None]
    worst = {
        name: max((value for one in overheads if (value := getattr(one, name)) is not None), default=None)
        for name in _Overhead.__struct_fields__
        if not name.endswith("range_ns")
    }
    timed = [(one.bare_step_ns, one) for one in overheads if one.bare_step_ns]
    windows = [(one.profiled_step_ns / bare - 1, one) for bare, one in timed if one.profiled_step_ns]
    window_frac, dearest = max(windows, key=itemgetter(0), default=(None, _Overhead()))
    own_ns = [(bare, one.own_ns_per_step) for bare, one in timed if one.own_ns_per_step is not None]
    bare, profiled = dearest.bare_range_ns, dearest.profiled_range_ns
    return {
        **worst,
        "window_frac": window_frac,
        "window_range": bare and profiled and [profiled[0] / max(bare[1], 1) - 1, profiled[1] / max(bare[0], 1) - 1],
        "own_frac": max((spent / bare for bare, spent in own_ns), default=None),
        "export_pause_ns": max(pauses_ns, default=None),
    }


@dataclass(frozen=True)
class ToApply:
    """The fixes that a run is to apply: as text, for the ranks, and as variables of the command's environment."""

    words: tuple[str, ...]
    packed: str
    variables: Mapping[str, str]


def applied_line(rows: Sequence[Mapping[str, Any]]) -> str:
    """The outcomes in a line: "applied: num_workers=4 at train.py:57 (was 0); not applied: fused=true (reason)"."""
    done = list(dict.fromkeys(_place(row) + _before(row) for row in rows if row["applied"]))
    failed = list(dict.fromkeys(f"{_place(row)} ({row['why']})" for row in rows if not row["applied"]))
    parts = [f"applied: {_listed(done) if done else 'nothing'}"]
    return "; ".join([*parts, f"not applied: {_listed(failed)}"] if failed else parts)


def _listed(parts: Sequence[str]) -> str:
    more = f" and {len(parts) - _MAX_SAID} more (see manifest.json)" if len(parts) > _MAX_SAID else ""
    return ", ".join(parts[:_MAX_SAID]) + more


def _place(row: Mapping[str, Any]) -> str:
    return f"{row['setting']}={shown(row['value'])}" + (f" at {row['at']}" if row["at"] else "")


def _before(row: Mapping[str, Any]) -> str:
    if row["before"] is None:
        return ""
    return " (so already)" if row["before"] == row["value"] else f" (was {shown(row['before'])})"
