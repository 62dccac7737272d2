"""Verified predictions: a file of records, and how often predictions of one kind fell inside their range.

One JSON object per line, appended in one write, as several processes may write. Two copies: in the user's data folder
(`$DDPROF_DATA_HOME`, `$XDG_DATA_HOME/ddprof`, else `~/.local/share/ddprof`), which later reports quote, and in the run
folder that was predicted from.
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec

from ddprof.errors import UsageError
from ddprof.report.model import Calibration, Report
from ddprof.untrusted.regular_files import read_bounded

FILE = "calibration.jsonl"
SCHEMA = "ddprof.calibration/1"
_MAX_BYTES = 64 << 20  # a hundred thousand predictions
_LARGEST_US = float(1 << 53)  # of a step: three centuries
_Us = Annotated[float, msgspec.Meta(gt=-_LARGEST_US, lt=_LARGEST_US)]


@dataclass(frozen=True)
class Record:
    """One verified prediction; microseconds per step.

    `outcome`: "inside" its range, "noise" (outside, but the measured step's own interval reaches into the range),
    "outside", "disturbed" (what was not changed took clearly longer or shorter: the machine was not the same), or
    "unclear" (inside, but the measured step's own interval reaches the step before: as well no gain at all).

    `kinds`: kinds of change that were replayed; `findings`: ids whose fix was tried; `settings`: as given.
    """

    at_utc: str
    before: str
    after: str
    settings: tuple[str, ...]
    kinds: tuple[str, ...]
    findings: tuple[str, ...]
    before_us: _Us
    predicted_us: _Us
    low_us: _Us
    high_us: _Us
    measured_us: _Us
    measured_low_us: _Us | None
    measured_high_us: _Us | None
    compute_us: tuple[_Us, _Us]  # computing per step, before and after
    outcome: str

    @property
    def key(self) -> tuple[str, str, str, tuple[str, ...]]:
        """Identity of a record."""
        return self.at_utc, self.before, self.after, self.settings


def outcome(
    measured_us: float, interval: tuple[float, float] | None, low_us: float, high_us: float, before_us: float
) -> str:
    """Outcome of a measured step against the predicted range; `interval`: of the measured mean, None where unknown."""
    if low_us <= measured_us <= high_us:
        is_change = before_us < low_us or before_us > high_us
        is_seen = interval is None or before_us < interval[0] or before_us > interval[1]
        return "unclear" if is_change and not is_seen else "inside"
    if interval is not None and interval[0] <= high_us and interval[1] >= low_us:
        return "noise"
    return "outside"


def user_file(environment: Mapping[str, str] | None = None) -> Path:
    """The user's calibration file; it need not exist."""
    environment = os.environ if environment is None else environment
    if environment.get("DDPROF_DATA_HOME"):
        return Path(environment["DDPROF_DATA_HOME"]) / FILE
    base = environment.get("XDG_DATA_HOME") or os.path.join(os.path.expanduser("~"), ".local", "share")
    return Path(base) / "ddprof" / FILE


def append(path: Path, record: Record) -> None:
    """Add a record. Raises UsageError where the file cannot be written."""
    line = json.dumps({"schema": SCHEMA, **asdict(record)}, allow_nan=False) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # A run folder may lie where others can write: no link is followed, no reader of a pipe waited for.
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
        try:
            os.write(handle, line.encode())
        finally:
            os.close(handle)
    except OSError as error:
        raise UsageError(f"{path}: not written: {error.strerror}") from error


def read(path: Path) -> list[Record]:
    """The records of a file, [] for an unreadable one; lines that are not records are skipped."""
    try:
        lines = read_bounded(path, _MAX_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    return [record for line in lines if (record := _record(line)) is not None]


def _record(line: str) -> Record | None:
    try:
        values: dict[str, Any] = json.loads(line)
        return msgspec.convert(values, Record) if values.get("schema") == SCHEMA else None
    except (ValueError, AttributeError, OverflowError, RecursionError):
        return None


def distinct(records: Iterable[Record]) -> list[Record]:
    """The records without duplicates, in order."""
    return list({record.key: record for record in records}.values())


def like(records: Iterable[Record], findings: Sequence[str], kinds: Sequence[str]) -> Calibration:
    """Calibration from earlier predictions of these findings, or of these kinds of change."""
    similar = [r for r in records if set(r.findings) & set(findings) or set(r.kinds) & set(kinds)]
    similar = [r for r in similar if r.outcome not in ("disturbed", "unclear")]
    return Calibration(sum(r.outcome == "inside" for r in similar), len(similar))


def calibrated(report: Report, records: Sequence[Record]) -> Report:
    """The report with the calibration of each of its predictions."""
    by_id = {f.id: like(records, (f.id,), ()) for f in report.findings}
    return replace(report, calibration={key: value for key, value in by_id.items() if value.total})


def of_run(paths: Iterable[str | os.PathLike[str]]) -> list[Record]:
    """Records in the run folders' own files, which a shared report may quote."""
    here = [Path(path) for path in paths if "://" not in os.fspath(path)]  # a store keeps no predictions
    folders = {path if os.path.isdir(path) else path.parent for path in here}
    return distinct(record for folder in sorted(folders) for record in read(folder / FILE))


def on_this_machine(paths: Iterable[str | os.PathLike[str]]) -> list[Record]:
    """Records of the run folders and of the user's file, without duplicates."""
    return distinct([*read(user_file()), *of_run(paths)])
