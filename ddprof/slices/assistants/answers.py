"""The tools: answers as text or JSON on runs below the folders that the user named."""

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

    def runs(self) -> list[str]:
        """Names of the runs below the folders, the newest first."""
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
        return sorted(written, key=lambda name: -written[name])


MOST_CHARACTERS = 20_000  # some 5,000 tokens: what an assistant can read among other things
MOST_KERNELS = 100
_KEPT_RUNS = 4  # an assistant asks several things of one run
Stated = list[str] | dict[str, str | bool | int | float]  # KEY=VALUE, or {KEY: VALUE}


class Answers:
    """The tools on the runs that are allowed, with what assistants are told of each; the last few runs stay in memory.

    They raise DdprofError where the question or the input is wrong.
    """

    def __init__(self, allowed: Allowed) -> None:
        self._allowed = allowed
        self._runs: OrderedDict[str, LoadedRun] = OrderedDict()

    def list_runs(self) -> str:
        """The recorded runs, the newest first: the names that the other tools take."""
        runs = self._allowed.runs()
        more = [f"[{len(runs) - MOST_LISTED} older runs are left out]"] if len(runs) > MOST_LISTED else []
        return "\n".join([*runs[:MOST_LISTED], *more]) or "no run was recorded below the folders that may be read"

    def verdict(self, run: str) -> str:
        """Explain why a run is slow: its bottleneck, where step time goes, and findings with ranks, gains and fixes."""
        return render_text(self._report(run), full=True)

    def finding(self, run: str, id: str) -> str:
        """One finding of a run with its evidence, fixes, price and the grounds of its confidence, as JSON. id: as the
        verdict prints it, for example input.straggler."""
        rows = to_contract(self._report(run))["findings"]
        findings = [row for row in rows if row["id"] == id]
        if not findings:
            names = [row["id"] for row in rows]
            there = ", ".join(dict.fromkeys(names)) or "none"
            raise NoUsableInput(f"no finding {id!r} in this run{meant(id, names)}; its findings: {there}")
        return json.dumps(findings, indent=1)

    def what_if(self, run: str, settings: Stated, now: Stated | None = None) -> str:
        """The step time of a run with settings changed, replayed all together. settings: KEY=VALUE, or KEY=VALUE@RANKS,
        for example ["num_workers=4", "bandwidth=2", "compute=1.3@5"]. now: KEY=VALUE of the run as it was, where it was
        not recorded (a refusal names it). Both may be objects: {"num_workers": 4}."""
        if not settings:
            raise UsageError("settings: want at least one, as num_workers=4 or compute=1.3@5")
        stated = parse_now({key: value for key, _, value in (text.partition("=") for text in _listed(now or []))})
        loaded = self._run(self._allowed.path(run))
        wanted = [parse_setting(text) for text in _listed(settings)]
        predicted = predict(loaded.pricer, wanted, present(loaded.measures, stated))
        return "\n".join(prediction_text(predicted, bottleneck(loaded.pricer, predicted.changes)))

    def compare(self, before: str, after: str) -> str:
        """Compare two runs: which cause changed, by how much, and whether the change is within noise."""
        return render_comparison(compare_reports(self._report(before), self._report(after)))

    def kernels(self, run: str, contains: str = "", most: int = 20) -> str:
        """The kernels (on CPU ranks: operators) of a run with most time, with module and line where recorded, as JSON;
        contains: a part of the name of kernel, operator, module or line."""
        wanted = contains.lower()
        kept = [
            row
            for row in kernels_of(self._run(self._allowed.path(run))).rows.rows()
            if not wanted or any(isinstance(value, str) and wanted in value.lower() for value in row.values())
        ]
        shown = kept[: max(1, min(most, MOST_KERNELS))]
        return json.dumps({"rows": shown, "rows_left_out": len(kept) - len(shown)}, indent=1)

    def explain_finding(self, id: str) -> str:
        """Explain a finding: what it detects, why it costs, how its gain is priced, how to fix it, and its limits."""
        return page(id)

    def hang(self, run: str) -> str:
        """Explain why a job hangs or failed: which rank, which collective, which line."""
        return why([self._allowed.path(run)]).text

    def _report(self, run: str) -> Report:
        path = self._allowed.path(run)
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


def _listed(stated: Stated) -> list[str]:
    """Settings as a list of KEY=VALUE, from a list or an object."""
    return stated if isinstance(stated, list) else [f"{key}={value}" for key, value in stated.items()]


def bounded(text: str) -> str:
    """The text without secrets, truncated to a length fit for an assistant, with the number of characters left out."""
    text = masked(text)
    if len(text) <= MOST_CHARACTERS:
        return text
    return f"{text[:MOST_CHARACTERS]}\n[{len(text) - MOST_CHARACTERS} more characters are left out]"
