"""Names of a run that its pages contain beyond the report, and their redaction."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePath

from ddprof.dashboard.exhibits.host import LOADER_SETTINGS
from ddprof.dashboard.exhibits.kernels import NAMED_BY_TRACES
from ddprof.dashboard.exhibits.parts.exhibit import Exhibit, Named, sheet
from ddprof.dashboard.figures.charts import Dumbbells, Flame, FlameFrame, Ranges
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.report.redaction.redact import Redaction, rewritten

# Customary names of groups and of axes of device meshes; hashing "data" would also hit the data loader.
_MESH_WORDS = frozenset(
    {"default_pg", "world", "data", "model", "tensor", "pipeline", "expert", "context", "sequence", "replicate"}
    | {"shard", "dp", "tp", "pp", "ep", "cp", "sp", "fsdp"}
)


def further_names(opened: OpenRun) -> dict[str, str]:
    """Hosts, trace files and process groups: name -> kind; {} for a saved report."""
    if not opened.has_traces:
        return {}
    job, kinds = opened.job, {}
    for facts in job.ranks:
        kinds[facts.identity.host or ""] = "host"
        kinds[facts.path] = kinds[PurePath(facts.path).name] = "path"
    for name in map(str, job.groups["name"]):
        if not name.isdigit() and name not in _MESH_WORDS:
            kinds[name] = "group"
    kinds.pop("", None)
    return kinds


def redaction_of(opened: OpenRun, key: bytes) -> Redaction:
    """Redaction of the names of a run and of its traces."""
    return Redaction(opened.report, key, further_names(opened))


def written(exhibit: Exhibit, redaction: Redaction) -> Exhibit:
    """The exhibit without names. Commands and patches, useless without names, are left out; captured settings, which
    could be anything, are hashed unless they are numbers.
    """
    if exhibit.id == LOADER_SETTINGS:
        rows = [(name, redaction.setting(str(value))) for name, value in exhibit.sheet.rows]
        exhibit = replace(exhibit, sheet=sheet(exhibit.sheet.columns, rows))
    if exhibit.id in NAMED_BY_TRACES:
        lines = [[_event(value, redaction) for value in row] for row in exhibit.sheet.rows]
        exhibit = replace(exhibit, sheet=replace(exhibit.sheet, rows=tuple(map(tuple, lines)), commands=()))
        if isinstance(chart := exhibit.chart, Ranges | Dumbbells):
            exhibit = replace(exhibit, chart=replace(chart, labels=list(map(redaction.event, chart.labels))))
        if isinstance(chart, Flame):
            hidden = [_frame(frame, redaction) for frame in chart.frames]
            exhibit = replace(exhibit, chart=replace(chart, frames=hidden))
    return rewritten(replace(exhibit, listings=()), redaction.text)


def _frame(frame: FlameFrame, redaction: Redaction) -> FlameFrame:
    if not frame.name:
        return frame
    return replace(frame, name=redaction.event(frame.name), words=redaction.event(frame.words))


def _event(value: object, redaction: Redaction) -> object:
    return type(value)(redaction.event(value)) if isinstance(value, Named) else value
