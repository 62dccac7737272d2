"""Score a labelled corpus: right cause, right rank, false accusations, and the ledger against the truth.

A labelled run is a folder with `label.json` (what is true) and `traces/`. A fault counts as found where a finding above
"info" names an accepted identifier and accepted culprits; a finding above "info" that no fault and no tolerated
identifier explains is false.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_all_start_methods, get_context
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ddprof.analyzers.engine import Options, analyze
from ddprof.causes import CAUSES
from ddprof.errors import DdprofError, NoUsableInput
from ddprof.report.model import Report
from ddprof.units import format_share

_KEYS = ("clean", "faults", "acceptable_finding_ids", "tolerated_ids", "expected_bound", "ledger", "clock")


@dataclass(frozen=True)
class RunScore:
    """How one labelled run came out. Errors are shares: of wall time (ledger), of the true step (step)."""

    name: str
    clean: bool
    faults: tuple[str, ...]
    found: tuple[bool, ...]  # per fault: identifier and culprits right
    named: tuple[bool, ...]  # per fault: identifier right, culprits or not
    false: tuple[str, ...]
    headline_right: bool
    bound_right: bool
    ledger_error: float
    worst_cause: str
    step_error: float | None  # predicted step without each fault, worst
    clock_inside: tuple[bool, ...]  # per host besides the reference
    replay_error: float | None
    problem: str = ""

    @property
    def right(self) -> bool:
        """Every fault found, nobody accused falsely."""
        return all(self.found) and not self.false and not self.problem


@dataclass(frozen=True)
class Score:
    """All runs of a corpus."""

    runs: tuple[RunScore, ...] = field(default=())

    def rows(self) -> list[dict[str, Any]]:
        """Per finding identifier: occurrences, found, identifier right, false alarms, precision and recall."""
        total: Counter[str] = Counter()
        found: Counter[str] = Counter()
        named: Counter[str] = Counter()
        false: Counter[str] = Counter()
        for run in self.runs:
            for fault, hit, name in zip(run.faults, run.found, run.named, strict=True):
                total[fault] += 1
                found[fault] += hit
                named[fault] += name
            false.update(run.false)
        rows = []
        for cause in sorted({*total, *false}):
            said = named[cause] + false[cause]
            rows.append(
                {
                    "cause": cause,
                    "runs": total[cause],
                    "recall": found[cause] / total[cause] if total[cause] else None,
                    "culprits": found[cause] / named[cause] if named[cause] else None,
                    "precision": named[cause] / said if said else None,
                    "false": false[cause],
                }
            )
        return rows

    def summary(self) -> dict[str, float]:
        """The figures that matter: faults right, healthy runs accused, errors of ledger, clock, replay and step."""
        faults = [hit for run in self.runs for hit in run.found]
        healthy = [run for run in self.runs if run.clean]
        clocks = [inside for run in self.runs for inside in run.clock_inside]
        steps = [run.step_error for run in self.runs if run.step_error is not None]
        replays = [run.replay_error for run in self.runs if run.replay_error is not None]
        return {
            "runs": len(self.runs),
            "faults": len(faults),
            "faults_right": float(np.mean(faults)) if faults else float("nan"),
            "runs_right": float(np.mean([run.right for run in self.runs])) if self.runs else float("nan"),
            "healthy": len(healthy),
            "healthy_accused": float(sum(bool(run.false) for run in healthy)),
            "bound_right": float(np.mean([run.bound_right for run in self.runs])) if self.runs else float("nan"),
            "ledger_error_mean": float(np.mean([run.ledger_error for run in self.runs])) if self.runs else float("nan"),
            "clock_inside": float(np.mean(clocks)) if clocks else float("nan"),
            "replay_error_median": float(np.median(replays)) if replays else float("nan"),
            "step_error_median": float(np.median(steps)) if steps else float("nan"),
        }


def labels(folder: Path) -> list[Path]:
    """The labels below a folder, in name order. Raises NoUsableInput where there is none."""
    found = sorted(folder.rglob("label.json"))
    if not found:
        raise NoUsableInput(f"{folder}: no label.json below it; a labelled run is a folder with label.json and traces/")
    return found


def score(folder: Path, limit: int | None = None, workers: int = 1) -> Iterator[RunScore]:
    """Score every labelled run below a folder, in name order, in `workers` processes. Raises NoUsableInput."""
    chosen = labels(folder)[:limit]
    if min(workers, len(chosen)) <= 1:
        yield from map(score_run, chosen)
        return
    method = "fork" if "fork" in get_all_start_methods() else "spawn"
    with ProcessPoolExecutor(min(workers, len(chosen)), mp_context=get_context(method)) as pool:
        yield from pool.map(score_run, chosen)


def read_label(path: Path) -> dict[str, Any]:
    """The content of a label. Raises NoUsableInput where it is not one."""
    try:
        label = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.MsgspecError) as error:
        raise NoUsableInput(f"{path}: not a label: {error}") from error
    missing = [key for key in _KEYS if key not in label]
    if missing:
        raise NoUsableInput(f"{path}: not a label: no {', '.join(missing)}")
    return label


def score_run(label_path: Path) -> RunScore:
    """Analyze one labelled run and compare. Raises NoUsableInput where the label is none."""
    label = read_label(label_path)
    try:
        reports = analyze([str(label_path.parent / "traces")], Options(workers=1, cache=False))
    except DdprofError as error:
        return _unread(label_path, label, str(error))
    return compare(label_path.parent.name, label, reports[0])


def _unread(path: Path, label: Mapping[str, Any], problem: str) -> RunScore:
    faults = tuple(f["id"] for f in label["faults"])
    missed = (False,) * len(faults)
    return RunScore(
        path.parent.name, label["clean"], faults, missed, missed, (), False, False, 1.0, "", None, (), None, problem
    )


def compare(name: str, label: Mapping[str, Any], report: Report) -> RunScore:
    """One report against its label."""
    serious = [f for f in report.findings if report.severity_of(f) != "info"]
    faults = label["faults"]
    hits = [_hit(fault, serious) for fault in faults]
    explained = {i for fault in faults for i in (fault["id"], *fault["acceptable_ids"])}
    explained |= {*label["tolerated_ids"], *label["acceptable_finding_ids"]}
    ledger_error, worst = _ledger_error(label, report)
    return RunScore(
        name=name,
        clean=bool(label["clean"]),
        faults=tuple(f["id"] for f in faults),
        found=tuple(found for found, _ in hits),
        named=tuple(named for _, named in hits),
        false=tuple(f.id for f in serious if f.id not in explained),
        headline_right=not faults or (bool(serious) and serious[0].id in label["acceptable_finding_ids"]),
        bound_right=report.verdict.bound in label["expected_bound"],
        ledger_error=ledger_error,
        worst_cause=worst,
        step_error=_step_error(label, report),
        clock_inside=tuple(_clocks(label, report)),
        replay_error=report.replay.error,
    )


def _hit(fault: Mapping[str, Any], serious: Iterable[Any]) -> tuple[bool, bool]:
    accepted = [sorted(c) for c in fault["acceptable_culprits"]]
    matching = [f for f in serious if f.id in (fault["id"], *fault["acceptable_ids"])]
    return any(sorted(f.ranks) in accepted for f in matching), bool(matching)


def _ledger_error(label: Mapping[str, Any], report: Report) -> tuple[float, str]:
    """Mean over causes of |booked - true| as a share of wall, over the ranks; and the cause that is furthest off."""
    errors = {cause: [] for cause in CAUSES}  # type: dict[str, list[float]]
    for rank, truth in label["ledger"]["per_rank"].items():
        mine = report.ledger.per_rank.get(int(rank))
        if mine is None:
            continue
        for cause in CAUSES:
            errors[cause].append(abs(mine[cause] - truth[cause]) / max(truth["wall_us"], 1e-9))
    means = {cause: float(np.mean(values)) if values else 0.0 for cause, values in errors.items()}
    worst = max(means, key=lambda c: means[c])
    return float(np.mean(list(means.values()))), f"{worst} {format_share(means[worst])}"


def _step_error(label: Mapping[str, Any], report: Report) -> float | None:
    errors = []
    for fault in label["faults"]:
        found = [f for f in report.findings if f.id in (fault["id"], *fault["acceptable_ids"])]
        if found:
            predicted = report.predicted_step_us(found[0])
            errors.append(abs(predicted - fault["counterfactual_step_us"]) / fault["counterfactual_step_us"])
    return max(errors) if errors else None


def _clocks(label: Mapping[str, Any], report: Report) -> Iterator[bool]:
    truth = label["clock"]["hosts"]
    reference = label["clock"]["reference"]
    zero = next(iter(report.clock.hosts), None)
    for host, clock in report.clock.hosts.items():
        if host == zero or host not in truth or zero not in truth or clock.error_us is None:
            continue
        shift = truth[host]["offset_us"] - truth[zero]["offset_us"] if zero != reference else truth[host]["offset_us"]
        yield abs(clock.offset_us - shift) <= clock.error_us + 1e-3
