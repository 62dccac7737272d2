"""Judgement of recordings: what ddprof says of each fault, against the table and the difference to its twins."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gpu_scripts.faults import FAULTS, Fault, twins

LEAST = 0.08  # of the step: faults that may be smaller are not asked for
HIDDEN = 0.03  # of the step: what may be promised of a rank whose fault is hidden behind communication
NEAR = 0.25  # of the measured gain: as good as inside the range


@dataclass(frozen=True)
class Run:
    """A recording. `ms`: its own mean step, none where it was cut off; `report`: what ddprof says, none if nothing."""

    ms: float | None
    report: dict[str, Any] | None

    def loud(self) -> list[dict[str, Any]]:
        """Findings that are more than information, the first one first."""
        return [one for one in self.report["findings"] if one["severity"] != "info"] if self.report else []

    def named(self, finding: dict[str, Any]) -> tuple[int, ...]:
        """Ranks that the finding names; none where it names all."""
        ranks = tuple(finding["ranks"])
        return () if self.report is None or len(ranks) == len(self.report["run"]["ranks"]) else ranks


def read(folders: Sequence[Path]) -> dict[str, Run]:
    """Runs of the folders by name, analyzed; of a run that is in several the first that was not cut off."""
    places: dict[str, tuple[float | None, Path]] = {}
    for folder in folders:
        for name, run in json.loads((folder / "times.json").read_text())["runs"].items():
            if places.get(name, (None,))[0] is None:
                places[name] = (run["ms"], folder / name)
    return {name: Run(ms, _report(path)) for name, (ms, path) in places.items()}


def _report(folder: Path) -> dict[str, Any] | None:
    analyze = [sys.executable, "-m", "ddprof.cli.main", "analyze", str(folder), "--no-cache", "--format", "json"]
    done = subprocess.run(analyze, capture_output=True, text=True, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else None


def judge(runs: dict[str, Run]) -> dict[str, Any]:
    """Rows of the faults, and the twins with whom they accuse."""
    healthy = {name: run for name, run in runs.items() if name.endswith("-0") and run.report}
    rows = [row(name, runs[f"{name}-1"], runs) for name in FAULTS if f"{name}-1" in runs]
    said = [{"twin": name, "says": _first(run), "accused": _accused(run)} for name, run in sorted(healthy.items())]
    return {"rows": rows, "twins": said}


def row(name: str, run: Run, runs: dict[str, Run]) -> dict[str, Any]:
    """Judgement of one fault. Told: the first finding that may name it, or that no twin has; gains in ms."""
    fault = FAULTS[name]
    others = [runs[twin] for twin in twins(name) if twin in runs]
    known = {(one["id"], *other.named(one)) for other in others for one in other.loud()}
    new = (one for one in run.loud() if one["id"] in fault.ids or (one["id"], *run.named(one)) not in known)
    told = next(new, None)
    gains = sorted(run.ms - other.ms for other in others if other.ms is not None) if run.ms is not None else []
    measured = [round(gain, 2) for gain in dict.fromkeys((gains[0], gains[-1]))] if gains else None
    predicted = _gain(told) if told and told["id"] in fault.ids else None
    return {
        "fault": name,
        "step_ms": run.ms and round(run.ms, 2),
        "first": _first(run),
        "told": _words(run, told),
        "expected": list(fault.ids),
        "ranks": list(fault.ranks),
        "also_of_twin": told is not None and (told["id"], *run.named(told)) in known,
        "measured_gain_ms": measured,
        "predicted_gain_ms": predicted,
        "verdict": _verdict(fault, run, told, measured),
        "gain_right": _is_priced(measured, predicted) if measured and predicted else None,
    }


def _verdict(fault: Fault, run: Run, told: dict[str, Any] | None, measured: list[float] | None) -> str:
    if run.report is None:
        return "not judged: no trace"
    if not fault.ids:
        step = run.ms if run.ms is not None else run.report["steps"]["wall_us"] / 1e3
        wrong = any(run.named(one) and (_gain(one) or {"value": 0.0})["value"] > HIDDEN * step for one in run.loud())
        return "wrong" if wrong else "right"
    if told and told["id"] in fault.ids and run.named(told) == fault.ranks:
        return "right"
    return "small" if run.ms and measured and measured[0] < LEAST * run.ms else "wrong"


def _is_priced(measured: list[float], predicted: dict[str, float]) -> bool:
    """True where the range meets the measured gains, or its middle is near one of them."""
    meets = predicted["low"] <= measured[-1] and predicted["high"] >= measured[0]
    return meets or any(abs(predicted["value"] - gain) <= NEAR * gain for gain in measured)


def _gain(finding: dict[str, Any]) -> dict[str, float] | None:
    """Predicted gain without the profiler, ms."""
    gain = finding["recoverable_untraced_us"] or finding["recoverable_us"]
    return {part: round(us / 1e3, 2) for part, us in gain.items()} if gain else None


def _words(run: Run, finding: dict[str, Any] | None) -> str:
    ranks = run.named(finding) if finding else ()
    return (finding["id"] + (f" of rank {', '.join(map(str, ranks))}" if ranks else "")) if finding else "nothing"


def _first(run: Run) -> str:
    return _words(run, next(iter(run.loud()), None))


def _accused(run: Run) -> list[int]:
    return sorted({rank for one in run.loud() for rank in run.named(one)})


def lines(judged: dict[str, Any]) -> list[str]:
    """Text of the judgement, a line for each fault, the twins and the counts."""
    told = []
    for one in judged["rows"]:
        gains, price = one["measured_gain_ms"], one["predicted_gain_ms"]
        measured = " to ".join(f"{gain:.1f}" for gain in gains) if gains else "unknown"
        predicted = f"{price['value']:.1f} ({price['low']:.1f} to {price['high']:.1f})" if price else "none"
        priced = {True: ", gain right", False: ", gain wrong", None: ""}[one["gain_right"]]
        expected = "/".join(one["expected"]) or "no rank"
        names = f"{one['fault']:<16} first {one['first']}; told {one['told']}; expected {expected}"
        also = " (of a twin too)" if one["also_of_twin"] else ""
        told.append(f"{names}; ms saved: measured {measured}, predicted {predicted}: {one['verdict']}{also}{priced}")
    accusing = [f"{twin['twin']} accuses {twin['accused']}" for twin in judged["twins"] if twin["accused"]]
    verdicts = [one["verdict"] for one in judged["rows"]]
    priced_rows = [one["gain_right"] for one in judged["rows"] if one["gain_right"] is not None]
    shared = sum(one["also_of_twin"] and one["verdict"] == "right" for one in judged["rows"])
    counts = (
        f"{verdicts.count('right')} right ({shared} told of a twin too), {verdicts.count('wrong')} wrong of "
        f"{len(verdicts)}; gains {sum(priced_rows)} of {len(priced_rows)}; "
        f"{len(accusing)} of {len(judged['twins'])} twins accuse"
    )
    return [*told, *accusing, counts]
