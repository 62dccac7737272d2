"""Files that tuning writes: FIXES.toml, the patch, and its predictions with their outcomes."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ddprof.errors import UsageError
from ddprof.report import calibration
from ddprof.report.calibration import Record
from ddprof.report.fixes import FILE_NAME
from ddprof.settings.fixes_file import write_fixes
from ddprof.slices.tuning.patching.patch import script_patch
from ddprof.trials.document import KEPT, Tried, TuneState, TuningAnswer, write_whole
from ddprof.trials.paired import LOST, WON
from ddprof.units import format_share
from ddprof.untrusted.secrets import masked, masked_words

PATCH = "fix.patch"
_DECIDED = (KEPT, WON, LOST)


@dataclass(frozen=True)
class Handover:
    """The kept settings as files. `diff`: "" where no line can be edited; `by_hand`: settings not in it, with why."""

    fixes: Path | None = None
    diff: str = ""
    by_hand: tuple[tuple[str, str], ...] = ()
    note: str = ""


def hand_over(result: TuningAnswer, state: TuneState, folder: Path) -> Handover:
    """Write FIXES.toml and, where a line of a script can be edited, the patch. Raises UsageError."""
    if not result.chosen or result.measured is None:
        return Handover()
    fixes = [candidate.fix for candidate in result.chosen]
    command = shlex.join(masked_words(state.options.command))
    head = (
        f"ddprof tune: {format_share(result.measured.share)} of the step saved, measured on: {command[:300]}",
        "ddprof run --apply THIS -- COMMAND makes them without an edit of the script.",
    )
    path = folder / FILE_NAME
    whys = {fix: candidate.finding for fix, candidate in zip(map(id, fixes), result.chosen, strict=True)}
    fixed = write_fixes([(fix, f"measured by ddprof tune; {whys[id(fix)]}") for fix in fixes], head)
    write_whole(path, fixed.encode("utf-8", "surrogateescape"))
    try:
        patch = script_patch(fixes, Path(state.cwd))
    except UsageError as error:  # libcst is not installed
        return Handover(path, note=str(error))
    if masked(patch.diff) != patch.diff:
        return Handover(path, note="no patch is written: lines beside the edit look like secrets")
    if patch.diff:
        write_whole(folder / PATCH, patch.diff.encode("utf-8", "surrogateescape"))
    return Handover(path, patch.diff, tuple((fix.words, why) for fix, why in patch.by_hand))


def records(result: TuningAnswer, state: TuneState, folder: Path, compute_us: float) -> list[Record]:
    """Each prediction that was tested by itself, with the measured step."""
    step_us = result.step_us
    if step_us is None:
        return []
    return [_record(tried, state, folder, step_us, compute_us) for tried in result.tried if _is_tested(tried)]


def _is_tested(tried: Tried) -> bool:
    """True for decided settings, also losers after two pairs, without which too high predictions would never count."""
    return tried.state in _DECIDED and tried.predicted is not None and tried.measured is not None


def _record(tried: Tried, state: TuneState, folder: Path, step_us: float, compute_us: float) -> Record:
    predicted, measured = tried.predicted, tried.measured
    assert predicted is not None and measured is not None
    low_us, high_us = step_us * (1 - predicted.high), step_us * (1 - predicted.low)
    interval_us = None
    if measured.low is not None and measured.high is not None:
        interval_us = (step_us * (1 - measured.high), step_us * (1 - measured.low))
    measured_us = step_us * (1 - measured.share)
    return Record(
        at_utc=state.started_utc,
        before=folder.name,
        after=folder.name,
        settings=tried.settings,
        kinds=(),
        findings=(tried.finding,),
        before_us=round(step_us, 3),
        predicted_us=round(step_us * (1 - predicted.share), 3),
        low_us=round(low_us, 3),
        high_us=round(high_us, 3),
        measured_us=round(measured_us, 3),
        measured_low_us=None if interval_us is None else round(interval_us[0], 3),
        measured_high_us=None if interval_us is None else round(interval_us[1], 3),
        compute_us=(compute_us, compute_us),
        outcome=calibration.outcome(measured_us, interval_us, low_us, high_us, step_us),
    )


def keep(new: Sequence[Record], folder: Path) -> None:
    """Add new records to the user's file and to the folder's. Raises UsageError."""
    for path in (folder / calibration.FILE, calibration.user_file()):
        there = {record.key for record in calibration.read(path)}
        for record in new:
            if record.key not in there:
                calibration.append(path, record)
