"""Names of served runs: unique names, identifiers independent of the order of arguments, and the path of each for
`ddprof whatif` and similar commands.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Sequence

from ddprof.analyzers.engine import LoadedRun
from ddprof.dashboard.numbers import place
from ddprof.report.model import Report
from ddprof.report.phrases import clean

_DIGITS = 8  # of the hash in an identifier: one in four thousand million


def run_ids(reports: Sequence[Report]) -> list[str]:
    """The identifiers of served runs in addresses, "mnist-1f0c22ab": made of the name and the folder of the run, so
    that a link holds on every server and while the job still writes. Several readings of one folder are numbered by
    step time.
    """
    stems = []
    for report in reports:
        digest = hashlib.sha256(repr((report.run.name, _folder(report))).encode("utf-8", "surrogatepass")).hexdigest()
        words = re.sub(r"[^A-Za-z0-9]+", "-", report.run.name).strip("-")[:40].strip("-")
        stems.append(f"{words or 'run'}-{digest[:_DIGITS]}")
    order = sorted(range(len(stems)), key=lambda at: (stems[at], reports[at].steps.wall_us, at))
    taken: Counter[str] = Counter()
    ids = list(stems)
    for at in order:
        taken[stems[at]] += 1
        if taken[stems[at]] > 1:
            ids[at] = f"{stems[at]}-{taken[stems[at]]}"
    return ids


def named_run(text: str, reports: Sequence[Report]) -> int | None:
    """Position of the run that an address names, by its identifier or by its number; None where there is none."""
    ids = run_ids(reports)
    return ids.index(text) if text in ids else place(text, len(reports))


def run_names(reports: Sequence[Report]) -> list[str]:
    """The names of served runs, made unique by their folders, else by a number."""
    names = [clean(report.run.name) or "run" for report in reports]
    folders = [_folder(report) for report in reports]
    for depth in range(1, max(map(len, folders), default=0) + 1):
        again = _alike(names)
        names = [
            clean("/".join(folder[-depth:])) if name in again and folder else name
            for name, folder in zip(names, folders, strict=True)
        ]
    again = _alike(names)
    return [f"{name} ({names[:at].count(name) + 1})" if name in again else name for at, name in enumerate(names)]


def _alike(names: Sequence[str]) -> set[str]:
    return {name for name, count in Counter(names).items() if count > 1}


def _folder(report: Report) -> list[str]:
    """The parts of the folder of a run's first file."""
    first = min(report.run.paths, default="")
    return [part for part in re.split(r"[/\\]", first)[:-1] if part]


def arguments(paths: Sequence[str], runs: Sequence[LoadedRun]) -> list[str]:
    """Paths that each contain one run under `paths` alone, in the order of the runs; "" for a run without one."""
    if len(paths) == 1 and len(runs) == 1:
        return [_whole(paths[0])]
    return [_own(run, [other for other in runs if other is not run], paths) for run in runs]


def _own(run: LoadedRun, others: Sequence[LoadedRun], paths: Sequence[str]) -> str:
    """The run's file, or its folder where that was searched whole and holds no other run."""
    files = _files(run)
    if len(files) == 1 and not any(files[0] in _files(other) for other in others):
        return files[0]
    if not files or any("://" in file for file in files):
        return ""
    folder = os.path.commonpath([os.path.dirname(file) for file in files])
    searched = any(_is_below(folder, _whole(path)) for path in paths if os.path.isdir(path))
    shared = any(_is_below(file, folder) for other in others for file in _files(other))
    return folder if searched and not shared else ""


def _files(run: LoadedRun) -> list[str]:
    return list(dict.fromkeys(_whole(source.path) for source in run.sources.values()))


def _whole(path: str) -> str:
    return path if "://" in path else os.path.abspath(path)


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(os.path.join(folder, ""))
