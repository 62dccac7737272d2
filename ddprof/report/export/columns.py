"""The report as tables with documented columns, for DuckDB, polars, pandas or a spreadsheet."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from ddprof.causes import CAUSES
from ddprof.report.model import Report, step_causes
from ddprof.tables import Column, Schema, Table, to_parquet
from ddprof.untrusted.plain_text import clean

RANK_CAUSES = Schema(
    "rank_causes",
    Column("rank", "int64", "rank number"),
    Column("host", "str", "host of the rank, '' if unknown"),
    Column("cause", "str", "ledger cause"),
    Column("mean_us", "float64", "microseconds per step"),
    Column("share", "float64", "share of the rank's step, 0 to 1", nullable=True),
)
_STEP = Column("step", "int64", "position of the step in the run")
STEPS = Schema("steps", _STEP, Column("wall_us", "float64", "microseconds", nullable=True))
STEP_CAUSES = Schema(
    "step_causes",
    _STEP,
    Column("cause", "str", "ledger cause"),
    Column("mean_us", "float64", "microseconds, mean over ranks"),
)
FINDINGS = Schema(
    "findings",
    Column("place", "int64", "1 = largest recoverable time"),
    Column("id", "str", "finding identifier (`ddprof explain ID`)"),
    Column("severity", "str", "critical, warning or info"),
    Column("ranks", "str", "culprit ranks, comma separated; '' where the whole job is meant"),
    Column("lost_us", "float64", "microseconds per step that the cause costs", nullable=True),
    Column("recoverable_us", "float64", "microseconds per step that come back without it", nullable=True),
    Column("low_us", "float64", "lower end of that", nullable=True),
    Column("high_us", "float64", "upper end of that", nullable=True),
    Column("confidence", "float64", "0 to 1"),
    Column("summary", "str", "the finding in words"),
)
# A spreadsheet runs a cell that begins with one of these, also in the full width of East Asian scripts.
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def report_tables(report: Report) -> dict[str, Table]:
    """The report's numbers as tables, by name; also available for a saved report."""
    return {
        "findings": _findings(report),
        "rank_causes": _rank_causes(report),
        "step_causes": _step_causes(report),
        "steps": STEPS.table({"step": range(len(report.steps.per_step_us)), "wall_us": list(report.steps.per_step_us)}),
    }


def write_tables(folder: Path, tables: Mapping[str, Table], form: str) -> list[Path]:
    """Write each table as `NAME.parquet` or `NAME.csv`, and the meaning of their columns as `columns.md`."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, table in tables.items():
        file = folder / f"{name}.{form}"
        if form == "csv":
            texts = {
                c.name: list(map(text_cell, map(str, table[c.name]))) for c in table.schema.columns if c.dtype == "str"
            }
            with file.open("w", encoding="utf-8", newline="") as sink:
                lines = csv.writer(sink, lineterminator="\n")
                lines.writerow(table.columns)
                lines.writerows(row.values() for row in table.replace(**texts).rows())
        else:
            file.write_bytes(to_parquet(table))
        written.append(file)
    guide = folder / "columns.md"
    guide.write_text(_guide(tables), encoding="utf-8")
    return [*written, guide]


def _guide(tables: Mapping[str, Table]) -> str:
    lines = ["# Columns", ""]
    for name, table in tables.items():
        lines += [f"## {name}", "", "| column | type | meaning |", "| --- | --- | --- |"]
        for c in table.schema.columns:
            lines.append(f"| {c.name} | {c.dtype}{', may be null' if c.nullable else ''} | {c.meaning} |")
        lines.append("")
    return "\n".join(lines)


def _findings(report: Report) -> Table:
    lines = []
    for place, f in enumerate(report.ranked_findings(), 1):
        gain = (f.recoverable_us.value, f.recoverable_us.low, f.recoverable_us.high)
        named = (place, f.id, report.severity_of(f), ",".join(map(str, f.ranks)))
        lines.append((*named, f.lost_us, *gain, f.confidence, f.summary))
    return _of_lines(FINDINGS, lines)


def _rank_causes(report: Report) -> Table:
    lines = []
    for rank, row in sorted(report.ledger.per_rank.items()):
        host, wall_us = report.run.hosts.get(rank, ""), row.get("wall_us", 0.0)
        for cause in CAUSES:
            value_us = row.get(cause, 0.0)
            lines.append((rank, host, cause, value_us, value_us / wall_us if wall_us > 0 else math.nan))
    return _of_lines(RANK_CAUSES, lines)


def _step_causes(report: Report) -> Table:
    causes = step_causes(report).items()
    return _of_lines(STEP_CAUSES, [(at, cause, us) for cause, values in causes for at, us in enumerate(values)])


def _of_lines(schema: Schema, lines: Sequence[tuple[object, ...]]) -> Table:
    """A table from its lines, each with a value per column."""
    columns = zip(*lines, strict=True) if lines else [()] * len(schema.columns)
    return schema.table({column.name: values for column, values in zip(schema.columns, columns, strict=True)})


def text_cell(text: str) -> str:
    """Text from a trace for a spreadsheet, quoted where it would be executed as a formula."""
    shown = clean(text)
    return "'" + shown if shown.lstrip(" ?'\"").startswith(_FORMULA) else shown
