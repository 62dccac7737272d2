"""The one path that `ddprof whatif` and its like take for a run that is served, so that they read the same files."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ddprof.analyzers.engine import LoadedRun


def arguments(paths: Sequence[str], runs: Sequence[LoadedRun]) -> list[str]:
    """For each run that was found under `paths` the path that holds it and no other; "" where there is none."""
    if len(paths) == 1 and len(runs) == 1:
        return [_whole(paths[0])]
    return [_own(run, [other for other in runs if other is not run], paths) for run in runs]


def _own(run: LoadedRun, others: Sequence[LoadedRun], paths: Sequence[str]) -> str:
    """The run's file, or its folder, where that was searched whole and holds nothing of another run."""
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
