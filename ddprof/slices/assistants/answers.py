"""Answers of each tool as text or JSON of bounded length, on runs below the folders that the user named."""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ddprof.analyzers.bottleneck import bottleneck, prediction_text
from ddprof.analyzers.catalogue import page
from ddprof.analyzers.engine import LoadedRun, Options, load_runs
from ddprof.analyzers.failure import why
from ddprof.analyzers.kernel_table.of_run import kernels_of
from ddprof.analyzers.settings.knobs import parse_setting
from ddprof.analyzers.settings.predict import predict
from ddprof.analyzers.settings.present import parse_now, present
from ddprof.errors import NoUsableInput, UsageError
from ddprof.readers.admission.discover import discover
from ddprof.report.comparison.compare import compare as compare_reports
from ddprof.report.comparison.text import render_text as render_comparison
from ddprof.report.json.contract import is_saved_report, read_saved, to_contract
from ddprof.report.model import Report
from ddprof.report.text import render_text
from ddprof.untrusted.secrets import masked
from ddprof.untrusted.suggestions import meant

_SHOWN_CHARACTERS = 200
MOST_LISTED = 100  # the newest; an assistant that wants others is told that there are more


@dataclass(frozen=True)
class RunNames:
    """Runs, latest first, by the names that the tools take. `left_out`: number of older ones that are not listed."""

    names: tuple[str, ...]
    left_out: int


@dataclass(frozen=True)
class Allowed:
    """The folders, resolved: a link that leads out of them is refused like any other path."""

    folders: tuple[Path, ...]

    @classmethod
    def of(cls, paths: Sequence[str]) -> Allowed:
        """The allowed folders. Raises UsageError for a path that is not a folder."""
        for path in paths:
            if not os.path.isdir(path):
                raise UsageError(f"{path}: no such folder")
        return cls(tuple(Path(path).resolve() for path in paths))

    def path(self, name: str) -> str:
        """The path of a run: a name as `runs` lists it, or a path. Raises NoUsableInput where it is not allowed."""
        for folder in self.folders:
            try:
                run = (folder / name).resolve(strict=True)
            except (OSError, ValueError, RuntimeError):  # none, too long, a zero byte, a circle of links
                continue
            if run.is_relative_to(folder):
                return str(run)
        shown = ", ".join(map(str, self.folders))
        asked = name[:_SHOWN_CHARACTERS]
        raise NoUsableInput(f"{asked}: no run of that name below {shown}, which is all that may be read")

    def runs(self) -> RunNames:
        """Names of the runs below the folders."""
        written: dict[str, float] = {}
        for folder in self.folders:
            try:
                inventory = discover([folder])
            except NoUsableInput:
                continue  # nothing was recorded there yet
            for _, sources in inventory.runs:
                at = Path(os.path.commonpath([os.path.dirname(source.path) for source in sources]))
                name = str(at.relative_to(folder)) if len(self.folders) == 1 else str(at)
                newest = max(os.stat(source.path).st_mtime for source in sources)
                written[name] = max(written.get(name, 0.0), newest)
        names = sorted(written, key=lambda name: -written[name])
        return RunNames(tuple(names[:MOST_LISTED]), max(0, len(names) - MOST_LISTED))


MOST_CHARACTERS = 20_000  # some 5,000 tokens: what an assistant can read among other things
MOST_KERNELS = 100
_KEPT_RUNS = 4  # an assistant asks several things of one run


class Answers:
    """Answers on runs by path; the last few runs stay in memory."""

    def __init__(self) -> None:
        self._runs: OrderedDict[str, LoadedRun] = OrderedDict()

    def verdict(self, path: str) -> str:
        """The bound of the step, where its time goes, and all findings with their gains."""
        return bounded(render_text(self._report(path), full=True))

    def finding(self, path: str, identifier: str) -> str:
        """Evidence, fixes, price and grounds of the findings of one identifier, as in the JSON report."""
        rows = to_contract(self._report(path))["findings"]
        findings = [row for row in rows if row["id"] == identifier]
        if not findings:
            names = [row["id"] for row in rows]
            there = ", ".join(dict.fromkeys(names)) or "none"
            raise NoUsableInput(
                f"no finding {identifier!r} in this run{meant(identifier, names)}; its findings: {there}"
            )
        return bounded(json.dumps(findings, indent=1))

    def what_if(self, path: str, settings: Sequence[str], now: Sequence[str]) -> str:
        """The step with settings changed, its range, and what bounds it then. `now`: the run's own settings."""
        if not settings:
            raise UsageError("settings: want at least one, as num_workers=4 or compute=1.3@5")
        stated = parse_now({key: value for key, _, value in (text.partition("=") for text in now)})
        run = self._run(path)
        predicted = predict(run.pricer, [parse_setting(text) for text in settings], present(run.measures, stated))
        return bounded("\n".join(prediction_text(predicted, bottleneck(run.pricer, predicted.changes))))

    def compare(self, before: str, after: str) -> str:
        """Changes between two runs by cause, against the noise of their steps."""
        return bounded(render_comparison(compare_reports(self._report(before), self._report(after))))

    def kernels(self, path: str, contains: str, most: int) -> str:
        """The kernels with most device time, as JSON rows."""
        wanted = contains.lower()
        kept = [
            row
            for row in kernels_of(self._run(path)).rows.rows()
            if not wanted or any(isinstance(value, str) and wanted in value.lower() for value in row.values())
        ]
        shown = kept[: max(1, min(most, MOST_KERNELS))]
        return bounded(json.dumps({"rows": shown, "rows_left_out": len(kept) - len(shown)}, indent=1))

    def hang(self, path: str) -> str:
        """The reason why a job hangs or has failed."""
        return bounded(why([path]).text)

    def _report(self, path: str) -> Report:
        if not is_saved_report(path):
            return self._run(path).report
        reports = read_saved(Path(path))
        if len(reports) != 1:
            raise NoUsableInput(f"{path}: holds {len(reports)} runs, not one")
        return reports[0]

    def _run(self, path: str) -> LoadedRun:
        if is_saved_report(path):
            raise NoUsableInput(f"{path}: a saved report cannot be replayed and holds no kernels; name the traces")
        if path not in self._runs:
            runs = list(load_runs([path], Options()))
            if len(runs) > 1:
                raise NoUsableInput(
                    f"{path}: holds {len(runs)} runs ({', '.join(run.label for run in runs)}); name one"
                )
            self._runs[path] = runs[0]
        self._runs.move_to_end(path)
        while len(self._runs) > _KEPT_RUNS:
            self._runs.popitem(last=False)
        return self._runs[path]


def explain(identifier: str) -> str:
    """The page of a finding: detection, cost, price, fix, limits."""
    return bounded(page(identifier))


def bounded(text: str) -> str:
    """The text without secrets, truncated to a length fit for an assistant, with the number of characters left out."""
    text = masked(text)
    if len(text) <= MOST_CHARACTERS:
        return text
    return f"{text[:MOST_CHARACTERS]}\n[{len(text) - MOST_CHARACTERS} more characters are left out]"
