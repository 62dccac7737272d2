"""`ddprof verify`: a prediction against a run with the change made."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ddprof.cli.load import load_one, load_run, pairs, say, tell
from ddprof.cli.output import text_or_json
from ddprof.cli.reading import Reading, reading_options
from ddprof.cli.whatif import now_option
from ddprof.errors import DdprofError, NoUsableInput, UsageError
from ddprof.finding_ids import HOST_LAUNCH_BOUND
from ddprof.findings import Recoverable
from ddprof.report import calibration
from ddprof.report.comparison.compare import compare, timed_mean_interval, timed_step_us
from ddprof.report.model import Calibration, Report
from ddprof.report.phrases import calibration_words
from ddprof.significance import mean_interval
from ddprof.units import format_share, format_us

if TYPE_CHECKING:
    from ddprof.analyzers.engine import LoadedRun
    from ddprof.analyzers.settings.predict import Prediction

SCHEMA = "ddprof.verify/1"
_WORDS = {
    "inside": "inside the predicted range",
    "noise": "outside the predicted range, within the noise of the measured steps",
    "outside": "outside the predicted range",
    "unclear": "not judged: inside the predicted range, but the noise would hide the gain",
    "disturbed": "not judged: computing, which was not changed, took {before} before and {after} after",
}
# Computing may differ by this much between two runs of the same work; beyond it something else than the change did it.
SAME_COMPUTE_SHARE = 0.15
COMPUTE_KINDS = ("scale_compute", "balance_compute", "balance_stages", "scale_kernels", "scale_host", "graph_launch")
COMPUTE_FINDINGS = ("straggler.", "compute.", "pipeline.", HOST_LAUNCH_BOUND)


class CommandAfterDashes(click.Command):
    """A click command that keeps the words after `--` apart: the job to run, not arguments."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse arguments as click does, up to the job's command."""
        at = args.index("--") if "--" in args else len(args)
        ctx.meta["job"] = tuple(args[at + 1 :])
        return super().parse_args(ctx, args[:at])


@click.command("verify", cls=CommandAfterDashes)
@click.argument("before")
@click.argument("after", required=False)
@click.option("--with", "settings", multiple=True, metavar="KEY=VALUE", help="What was changed, as for whatif.")
@click.option("--finding", metavar="ID", help="What was changed: the fix of this finding of BEFORE.")
@now_option
@click.option("--out", default="ddprof-runs", show_default=True, help="Folder for the run that is started.")
@click.option("--skip", default=5, show_default=True, type=click.IntRange(0), help="Steps before the trace window.")
@click.option("--steps", default=10, show_default=True, type=click.IntRange(3), help="Steps in the trace window.")
@text_or_json
@click.option("--no-record", is_flag=True, help="Do not append the outcome to the calibration files.")
@reading_options
@click.pass_context
def command(
    ctx: click.Context,
    before: str,
    after: str | None,
    settings: tuple[str, ...],
    finding: str | None,
    now: tuple[str, ...],
    out: str,
    skip: int,
    steps: int,
    form: str,
    no_record: bool,
    reading: Reading,
) -> None:
    """Compare what ddprof predicts for BEFORE with a setting changed to what the changed job measures.

    The changed job is run now, or was traced already as AFTER.

    \b
    ddprof verify RUN --with num_workers=4 -- torchrun train.py --workers 4
    ddprof verify RUN_A RUN_B --with bucket_cap_mb=25
    ddprof verify RUN_A RUN_B --finding straggler.compute

    The outcome is kept: later reports say how many predictions like theirs fell inside their range.
    """
    job: tuple[str, ...] = ctx.meta["job"]
    if bool(job) == bool(after):
        raise UsageError("verify: want either AFTER or `-- COMMAND...`")
    if bool(settings) == bool(finding):
        raise UsageError("verify: want either --with KEY=VALUE or --finding ID")
    loaded = load_run(before, reading)
    predicted = _of_finding(loaded, finding) if finding else _of_settings(loaded, settings, now)
    folder = after or _run(job, out, skip, steps)
    measured = load_one(folder, reading)
    differences = compare(loaded.report, measured).differences
    if differences:
        raise NoUsableInput(f"{folder} is another kind of run: {differences[0]}; nothing verified")
    record = _record(loaded, measured, predicted, settings or (finding or "",), before, folder)
    if not no_record:
        _keep(record, before)
    calibrated = calibration.like(calibration.on_this_machine([before]), record.findings, record.kinds)
    if form == "json":
        document = {"schema": SCHEMA, **asdict(record), "like_this": asdict(calibrated)}
        click.echo(json.dumps(document, indent=1, allow_nan=False))
    else:
        tell("\n".join(to_text(record, calibrated)))


def _of_settings(loaded: LoadedRun, settings: Sequence[str], now: Sequence[str]) -> dict[str, Any]:
    """The prediction for settings: its numbers, the kinds of change, and the findings with these settings as a fix."""
    from ddprof.analyzers.settings.knobs import parse_setting
    from ddprof.analyzers.settings.predict import predict
    from ddprof.analyzers.settings.present import parse_now, present

    wanted = [parse_setting(text) for text in settings]
    stated = parse_now(pairs("--now", now))
    prediction: Prediction = predict(loaded.pricer, wanted, present(loaded.measures, stated))
    keys = {setting.key for setting in wanted}
    bare_us, traced_us = loaded.pricer.unprofiled_us(prediction.changes), loaded.pricer.step_us(prediction.changes)
    shrinks = bare_us / traced_us if bare_us is not None and traced_us > 0 else None
    return {
        **_ranged(prediction.before_us, prediction.after_us, prediction.low_us, prediction.high_us),
        "timed": None
        if shrinks is None
        else _ranged(
            loaded.report.steps.unprofiled_us,
            *(shrinks * us for us in (prediction.after_us, prediction.low_us, prediction.high_us)),
        ),
        "kinds": tuple(dict.fromkeys(change.kind for change in prediction.changes)),
        "findings": tuple(f.id for f in loaded.report.findings if keys & {fix.setting for fix in f.fixes}),
    }


def _of_finding(loaded: LoadedRun, finding: str) -> dict[str, Any]:
    report: Report = loaded.report
    chosen = next((f for f in report.ranked_findings() if f.id == finding), None)
    if chosen is None:
        names = ", ".join(f.id for f in report.ranked_findings()) or "none"
        raise UsageError(f"--finding {finding}: not found in this run; its findings: {names}")
    bare_us, bare = report.steps.unprofiled_us, chosen.unprofiled_us
    return {
        **_with_gain(report.steps.wall_us, chosen.recoverable_us),
        "timed": None if bare_us is None or bare is None else _with_gain(bare_us, bare),
        "kinds": (),
        "findings": (finding,),
    }


def _with_gain(step_us: float, gain: Recoverable) -> dict[str, Any]:
    return _ranged(step_us, step_us - gain.value, step_us - gain.high, step_us - gain.low)


def _ranged(before_us: float | None, predicted_us: float, low_us: float, high_us: float) -> dict[str, Any]:
    return {"before_us": before_us, "predicted_us": predicted_us, "low_us": low_us, "high_us": high_us}


def _run(job: Sequence[str], out: str, skip: int, steps: int) -> str:
    """Run the changed job under capture and return its run folder. Raises DdprofError where it fails."""
    folder = Path(out) / f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-verify-{os.getpid()}"
    options = ["--run-dir", str(folder), "--skip", str(skip), "--steps", str(steps)]
    ran = subprocess.run([sys.executable, "-m", "ddprof.cli.main", "run", *options, "--", *job], check=False)
    if ran.returncode:
        raise DdprofError(f"the command ended with {ran.returncode}: nothing verified")
    return str(folder)


def _record(
    loaded: LoadedRun,
    measured: Report,
    predicted: dict[str, Any],
    settings: Sequence[str],
    before: str,
    after: str,
) -> calibration.Record:
    interval, step_us = timed_mean_interval(measured), timed_step_us(measured)
    if step_us is not None and predicted["timed"] is not None:  # the whole run decides, a window is some steps of it
        predicted = {**predicted, **predicted["timed"]}
    else:
        interval, step_us = mean_interval(measured.steps.per_step_us), measured.steps.wall_us
    range_us = predicted["low_us"], predicted["high_us"]
    outcome = calibration.outcome(step_us, interval, *range_us, predicted["before_us"])
    if outcome not in ("inside", "unclear") and _is_disturbed(loaded.report, measured, predicted):
        outcome = "disturbed"
    return calibration.Record(
        at_utc=datetime.now(timezone.utc).isoformat(timespec="microseconds"),
        before=Path(before).resolve().name,
        after=Path(after).resolve().name,
        settings=tuple(settings),
        before_us=round(predicted["before_us"], 3),
        measured_us=round(step_us, 3),
        measured_low_us=None if interval is None else round(interval[0], 3),
        measured_high_us=None if interval is None else round(interval[1], 3),
        compute_us=(_compute_us(loaded.report), _compute_us(measured)),
        outcome=outcome,
        predicted_us=round(predicted["predicted_us"], 3),
        low_us=round(predicted["low_us"], 3),
        high_us=round(predicted["high_us"], 3),
        kinds=predicted["kinds"],
        findings=predicted["findings"],
    )


def _compute_us(report: Report) -> float:
    return round(report.ledger.job.get("compute", 0.0), 3)


def _is_disturbed(before: Report, after: Report, predicted: dict[str, Any]) -> bool:
    """True where compute changed although the setting does not affect it."""
    if set(predicted["kinds"]) & set(COMPUTE_KINDS) or any(
        f.startswith(COMPUTE_FINDINGS) for f in predicted["findings"]
    ):
        return False
    first, second = _compute_us(before), _compute_us(after)
    return abs(second - first) > SAME_COMPUTE_SHARE * max(first, 1.0)


def _keep(record: calibration.Record, before: str) -> None:
    path = Path(before)
    if path.is_dir():
        try:
            calibration.append(path / calibration.FILE, record)
        except UsageError as error:
            say(str(error))
    calibration.append(calibration.user_file(), record)


def _outcome_words(record: calibration.Record) -> str:
    before, after = record.compute_us
    return _WORDS[record.outcome].format(before=format_us(before), after=format_us(after))


def to_text(record: calibration.Record, calibrated: Calibration) -> list[str]:
    """The comparison in a few lines."""
    low, high = record.measured_low_us, record.measured_high_us
    noise = "" if low is None or high is None else f" (95 % interval {format_us(low)} to {format_us(high)})"
    error = record.predicted_us / record.measured_us - 1 if record.measured_us else float("nan")
    gained, promised = record.before_us - record.measured_us, record.before_us - record.predicted_us
    lines = [
        f"predicted  {format_us(record.predicted_us)} per step (range {format_us(record.low_us)} to "
        f"{format_us(record.high_us)}), from {format_us(record.before_us)}",
        f"measured   {format_us(record.measured_us)} per step{noise}",
        f"outcome    {_outcome_words(record)}; predicted {format_share(abs(error))} too "
        f"{'long' if error >= 0 else 'short'}",
        f"gain       {format_us(gained)}, predicted {format_us(promised)}",
    ]
    words = calibration_words(calibrated).removeprefix("; ")
    return [*lines, f"so far     {words}"] if words else lines
