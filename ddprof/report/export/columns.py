"""The report as tables with documented columns, for DuckDB, polars, pandas or a spreadsheet."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ddprof.causes import CAUSES
from ddprof.report.model import Report
from ddprof.report.step_causes import step_causes
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
STEP_CAUSES = Schema(
    "step_causes",
    Column("step", "int64", "position of the step in the run"),
    Column("cause", "str", "ledger cause"),
    Column("mean_us", "float64", "microseconds, mean over ranks"),
)
STEPS = Schema(
    "steps",
    Column("step", "int64", "position of the step in the run"),
    Column("wall_us", "float64", "microseconds", nullable=True),
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
            _as_text(table).to_pandas().to_csv(file, index=False)
        else:
            file.write_bytes(to_parquet(table))
        written.append(file)
    guide = folder / "columns.md"
    guide.write_text(_guide(tables), encoding="utf-8")
    return [*written, guide]


def _as_text(table: Table) -> Table:
    """The table with text cells that no spreadsheet executes; numbers are unchanged."""
    texts = {
        c.name: [text_cell(str(value)) for value in table[c.name]] for c in table.schema.columns if c.dtype == "str"
    }
    return table.replace(**texts) if texts else table


def _guide(tables: Mapping[str, Table]) -> str:
    lines = ["# Columns", ""]
    for name, table in tables.items():
        lines += [f"## {name}", "", "| column | type | meaning |", "| --- | --- | --- |"]
        lines += [
            f"| {c.name} | {c.dtype}{', may be null' if c.nullable else ''} | {c.meaning} |"
            for c in table.schema.columns
        ]
        lines.append("")
    return "\n".join(lines)


def _findings(report: Report) -> Table:
    ranked = report.ranked_findings()
    return FINDINGS.table(
        {
            "place": range(1, len(ranked) + 1),
            "id": [f.id for f in ranked],
            "severity": [report.severity_of(f) for f in ranked],
            "ranks": [",".join(map(str, f.ranks)) for f in ranked],
            "lost_us": [f.lost_us for f in ranked],
            "recoverable_us": [f.recoverable_us.value for f in ranked],
            "low_us": [f.recoverable_us.low for f in ranked],
            "high_us": [f.recoverable_us.high for f in ranked],
            "confidence": [f.confidence for f in ranked],
            "summary": [f.summary for f in ranked],
        }
    )


def _rank_causes(report: Report) -> Table:
    cells = [(rank, cause, row) for rank, row in sorted(report.ledger.per_rank.items()) for cause in CAUSES]
    return RANK_CAUSES.table(
        {
            "rank": [rank for rank, _, _ in cells],
            "host": [report.run.hosts.get(rank, "") for rank, _, _ in cells],
            "cause": [cause for _, cause, _ in cells],
            "mean_us": [row.get(cause, 0.0) for _, cause, row in cells],
            "share": [_share(row.get(cause, 0.0), row.get("wall_us", 0.0)) for _, cause, row in cells],
        }
    )


def _share(value_us: float, wall_us: float) -> float:
    return value_us / wall_us if wall_us > 0 else float("nan")


def _step_causes(report: Report) -> Table:
    cells = [(step, cause, value) for cause, values in step_causes(report).items() for step, value in enumerate(values)]
    return STEP_CAUSES.table(
        {
            "step": [step for step, _, _ in cells],
            "cause": [cause for _, cause, _ in cells],
            "mean_us": [value for _, _, value in cells],
        }
    )


def text_cell(text: str) -> str:
    """Text from a trace for a spreadsheet, quoted where it would be executed as a formula."""
    shown = clean(text)
    return "'" + shown if shown.lstrip(" ?'\"").startswith(_FORMULA) else shown
