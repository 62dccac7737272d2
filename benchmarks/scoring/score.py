"""Score a labelled corpus: right cause, right rank, false accusations, and the ledger against the truth.

A labelled run is a folder with `label.json` (what is true) and `traces/`. A fault counts as found where a finding above
"info" names an accepted identifier and accepted culprits; a finding above "info" that no fault and no tolerated
identifier explains is false. Labels of messy recordings may forbid identifiers, name several step times that are
right, and say that the files are independent runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_all_start_methods, get_context
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from benchmarks.scoring.mess_rows import mess_rows, quantile
from benchmarks.scoring.run_score import RunScore, SaidFinding
from ddprof.analyzers.engine import Options, analyze
from ddprof.causes import CAUSES
from ddprof.errors import DdprofError, NoUsableInput
from ddprof.findings import Finding
from ddprof.report.model import Report
from ddprof.units import format_share

_KEYS = ("clean", "faults", "acceptable_finding_ids", "tolerated_ids", "expected_bound", "ledger", "clock")


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

    def messes(self) -> list[dict[str, Any]]:
        """Per kind of mess: runs, right, healthy, accused, forbidden, errors of gain and step."""
        return mess_rows(self.runs)

    def summary(self) -> dict[str, float]:
        """The figures that matter: faults right, healthy runs accused, errors of ledger, clock, replay and step."""
        faults = [hit for run in self.runs for hit in run.found]
        healthy = [run for run in self.runs if run.clean]
        fixes = [right for run in self.runs for right in run.fixes if right is not None]
        clocks = [inside for run in self.runs for inside in run.clock_inside]
        steps = [run.step_error for run in self.runs if run.step_error is not None]
        replays = [run.replay_error for run in self.runs if run.replay_error is not None]
        ledgers = [run.ledger_error for run in self.runs if run.ledger_error is not None]
        return {
            "runs": len(self.runs),
            "faults": len(faults),
            "faults_right": float(np.mean(faults)) if faults else float("nan"),
            "first_fix_right": float(np.mean(fixes)) if fixes else float("nan"),
            "runs_right": float(np.mean([run.right for run in self.runs])) if self.runs else float("nan"),
            "healthy": len(healthy),
            "healthy_accused": float(sum(bool(run.false) for run in healthy)),
            "bound_right": float(np.mean([run.bound_right for run in self.runs])) if self.runs else float("nan"),
            "ledger_error_mean": float(np.mean(ledgers)) if ledgers else float("nan"),
            "clock_inside": float(np.mean(clocks)) if clocks else float("nan"),
            "replay_error_median": float(np.median(replays)) if replays else float("nan"),
            "step_error_median": float(np.median(steps)) if steps else float("nan"),
            "forbidden_said": float(sum(bool(run.forbidden) for run in self.runs)),
            "gain_error_median": self._quantile([run.gain_error for run in self.runs], 0.5),
            "gain_error_p90": self._quantile([run.gain_error for run in self.runs], 0.9),
            "wall_error_median": self._quantile([run.wall_error for run in self.runs], 0.5),
        }

    @staticmethod
    def _quantile(values: list[float | None], share: float) -> float:
        found = quantile(values, share)
        return float("nan") if found is None else found


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
    return compare(label_path.parent.name, label, *reports)


def _unread(path: Path, label: Mapping[str, Any], problem: str) -> RunScore:
    faults = tuple(f["id"] for f in label["faults"])
    missed = (False,) * len(faults)
    return RunScore(
        path.parent.name, label["clean"], faults, missed, missed, (), False, False, 1.0, "", None, (), None, problem,
        tuple(label.get("mess", ())),
    )  # fmt: skip


def compare(name: str, label: Mapping[str, Any], report: Report, *others: Report) -> RunScore:
    """One report against its label; `others` are those of further runs in the folder, where it holds several.

    All of them are judged: what is said, the bound, the replay, and the steps where the label says the runs are
    independent; else the label's numbers are those of the run with most ranks.
    """
    reports = (report, *others)
    main = max(reports, key=lambda each: len(each.run.ranks))
    labelled = reports if "independent_runs" in label else (main,)
    serious = [f for each in reports for f in each.findings if each.severity_of(f) != "info"]
    faults = label["faults"]
    hits = [_hit(fault, serious) for fault in faults]
    explained = {i for fault in faults for i in (fault["id"], *fault["acceptable_ids"])}
    explained |= {*label["tolerated_ids"], *label["acceptable_finding_ids"], *label.get("allowed", ())}
    ledger_error, worst = (None, "") if label.get("skip_ledger") else _ledger_error(label, main)
    return RunScore(
        name=name,
        clean=bool(label["clean"]),
        faults=tuple(f["id"] for f in faults),
        found=tuple(found for found, _ in hits),
        named=tuple(named for _, named in hits),
        false=tuple(f.id for f in serious if f.id not in explained),
        headline_right=not faults or (bool(serious) and serious[0].id in label["acceptable_finding_ids"]),
        bound_right=all(each.verdict.bound in label["expected_bound"] for each in labelled),
        ledger_error=ledger_error,
        worst_cause=worst,
        step_error=_worst(_step_error(label, each) for each in reports),
        clock_inside=tuple(_clocks(label, main)),
        replay_error=_worst(each.replay.error for each in reports),
        problem=_mixed(label, reports),
        mess=tuple(label.get("mess", ())),
        forbidden=tuple(f.id for f in serious if f.id in label.get("forbidden_ids", ())),
        gain_error=_worst(_gain_error(label, each) for each in reports),
        wall_error=_worst(_wall_error(label, each) for each in labelled),
        fixes=tuple(_first_fix(fault, serious) for fault in faults),
        said=tuple(SaidFinding(f.id, f.basis, f.doubts, _is_true(f, label, explained)) for f in serious),
    )


def _first_fix(fault: Mapping[str, Any], serious: Iterable[Finding]) -> bool | None:
    """True where the first fix of the finding on a fault is the one that helps, by a word of the label."""
    words = fault.get("fix_words") or ()
    said = next((f for f in serious if f.id in (fault["id"], *fault["acceptable_ids"]) and f.fixes), None)
    return None if not words or said is None else any(word in said.fixes[0].setting for word in words)


def _worst(errors: Iterable[float | None]) -> float | None:
    """The largest of the errors that are known; None where none is."""
    return max((error for error in errors if error is not None), default=None)


def _is_true(finding: Finding, label: Mapping[str, Any], explained: Set[str]) -> bool:
    """True where the label accepts a finding: its ranks too where a fault states them."""
    if finding.id in label.get("forbidden_ids", ()):
        return False
    faults = [fault for fault in label["faults"] if finding.id in (fault["id"], *fault["acceptable_ids"])]
    if not faults:
        return finding.id in explained
    return any(sorted(finding.ranks) in map(sorted, fault["acceptable_culprits"]) for fault in faults)


def _mixed(label: Mapping[str, Any], reports: Sequence[Report]) -> str:
    """Error where independent runs were merged; "" for none."""
    runs = int(label.get("independent_runs", len(reports)))
    largest = max(len(report.run.ranks) for report in reports)
    if runs == len(reports) or largest == 1:
        return ""
    return f"{runs} independent runs, taken for a job of {largest} ranks"


def _wall_error(label: Mapping[str, Any], report: Report) -> float | None:
    """Distance of the report's step to the nearest step time that is right; None where the label gives no numbers."""
    if label.get("skip_numbers"):
        return None
    accepted = label.get("accept_step_us") or [label.get("step_us", 0.0)]
    errors = [abs(report.steps.wall_us - us) / us for us in accepted if us > 0]
    return min(errors) if errors else None


def _gain_error(label: Mapping[str, Any], report: Report) -> float | None:
    """Distance of each fault's stated gain from the true range; the worst, None where no fault was found."""
    errors = []
    for fault in label["faults"]:
        found = _named(fault, report)
        if found and label.get("step_us"):
            low, high = fault.get("recoverable_range_us") or [fault["recoverable_us"]] * 2
            gain = found[0].recoverable_us.value
            errors.append(max(low - gain, gain - high, 0.0) / label["step_us"])
    return max(errors) if errors else None


def _named(fault: Mapping[str, Any], report: Report) -> list[Finding]:
    return [f for f in report.findings if f.id in (fault["id"], *fault["acceptable_ids"])]


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
        found = _named(fault, report)
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
