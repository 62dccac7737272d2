"""`ddprof plan`: the best value of a setting with its curve, and the best layout over devices."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ddprof.cli.fixes import FIXES_HELP
from ddprof.cli.load import load_run, pairs, say
from ddprof.cli.output import text_or_json, write_file
from ddprof.cli.reading import Reading, reading_options
from ddprof.cli.whatif import now_option
from ddprof.errors import UsageError
from ddprof.slices.planning.layout_commands import print_plan, scale, sharding
from ddprof.units import MIB, format_bytes, format_rate, format_share, format_us

if TYPE_CHECKING:
    from ddprof.analyzers.engine import LoadedRun
    from ddprof.analyzers.settings.curves import BucketPlan, LoaderPlan, SettingCurve
    from ddprof.analyzers.settings.present import Present

_KINDS = {
    "cpu": "bound by the CPU (decoding, transforms); more workers help only while cores are free",
    "wait": "mostly waiting (storage, network); more workers help beyond the cores too",
    "collate": "mostly collating; collate in fewer copies, or batch in the data set",
    "mixed": "part CPU, part waiting",
}
_SOURCES = {
    "workers": "timed in the workers",
    "inline": "timed in the training process, which makes its batches itself",
    "arrivals": "from the pace at which batches arrived",
}
_BAR = 36
_CLIPPED = 2.5  # bars longer than so many times the best one say nothing more


@click.group("plan", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Plan a setting from what a run measured, with the curve or table it was read from and what was assumed.

    \b
    ddprof plan buckets ddprof-runs/latest
    ddprof plan loader ddprof-runs/latest
    ddprof plan sharding ddprof-runs/latest
    ddprof plan scale ddprof-runs/latest --world 64
    """


def _of_a_run(command: Callable[..., None]) -> Callable[..., Any]:
    """Decorate a command with the common options: a run, values its recording lacks, and the output format."""
    fixes_option = click.option("--fixes", type=click.Path(path_type=Path), help=FIXES_HELP)
    return click.argument("run")(now_option(fixes_option(text_or_json(reading_options(command)))))


@command.command("buckets")
@_of_a_run
def buckets(run: str, now: tuple[str, ...], fixes: Path | None, form: str, reading: Reading) -> None:
    """Plan DDP's bucket_cap_mb and first bucket.

    They follow from the run's gradient times and message costs.
    """
    from ddprof.analyzers.settings.curves import plan_buckets

    loaded, present = _loaded(run, now, reading)
    plan = plan_buckets(loaded.pricer, present)
    print_plan("ddprof.plan.buckets/1", loaded.label, plan, form, bucket_text)
    _write(fixes, loaded, {"bucket_cap_mb": plan.advised_mb}, plan.caps.now == plan.advised_mb)


@command.command("loader")
@_of_a_run
def loader(run: str, now: tuple[str, ...], fixes: Path | None, form: str, reading: Reading) -> None:
    """Plan num_workers and prefetch_factor from the cost of a batch."""
    from ddprof.analyzers.settings.curves import plan_loader

    loaded, present = _loaded(run, now, reading)
    plan = plan_loader(loaded.pricer, present)
    print_plan("ddprof.plan.loader/1", loaded.label, plan, form, loader_text)
    _write(fixes, loaded, {"num_workers": plan.advised_workers}, plan.workers.now == plan.advised_workers)


def _write(path: Path | None, loaded: LoadedRun, values: Mapping[str, bool | float | int | str], same: bool) -> None:
    """Write the advice as FIXES.toml for the lines that create its objects. Raises UsageError where it has none."""
    from ddprof.analyzers.summarise import lines_for
    from ddprof.settings.fixes_file import write_fixes
    from ddprof.settings.wanted import WantedFix

    if path is None:
        return
    if same:
        raise UsageError("the advice is to keep the setting: there is nothing to apply")
    try:
        places = lines_for(values, loaded.measures.job) or ("",)
        wanted = [WantedFix(values, at, "") for at in places]
    except ValueError as error:
        raise UsageError(f"the advice cannot be applied: {error}") from None
    write_file(path, write_fixes([(fix, "advised by ddprof plan") for fix in wanted]))
    say(f"wrote {path}; next: ddprof run --apply {shlex.quote(str(path))} -- COMMAND")


def _loaded(run: str, now: tuple[str, ...], reading: Reading) -> tuple[LoadedRun, Present]:
    from ddprof.analyzers.settings.present import parse_now, present

    stated = parse_now(pairs("--now", now))
    loaded = load_run(run, reading)
    return loaded, present(loaded.measures, stated)


def bucket_text(plan: BucketPlan) -> list[str]:
    """The plan in words."""
    same = plan.caps.now == plan.advised_mb
    advice = f"keep bucket_cap_mb={plan.advised_mb:g}" if same else f"bucket_cap_mb={plan.advised_mb:g}"
    lines = [
        f"{advice}: {_change(plan.step_us, plan.advised_us)} (range {format_us(plan.low_us)} to "
        f"{format_us(plan.high_us)}){_flat_words(plan.caps, plan.advised_mb)}",
        "",
        *_curve_lines(plan.caps, plan.advised_mb),
        "",
        *_curve_lines(plan.firsts),
        "",
        f"gradients: {format_bytes(plan.gradient_mb * MIB)} in {plan.recorded_buckets:.3g} buckets per backward pass; "
        f"ready times: {plan.source}",
        f"cost of an all-reduce: {format_us(plan.latency_us)} + size / {format_rate(plan.gb_per_s * 1e9)}, from "
        f"messages of {format_bytes(plan.measured_mb[0] * MIB)} to {format_bytes(plan.measured_mb[1] * MIB)}",
    ]
    if plan.is_guess:
        lines.append("the run's messages have one size: their latency is assumed, and the curve is a guess beyond it")
    return lines


def loader_text(plan: LoaderPlan) -> list[str]:
    """The plan in words."""
    same = plan.workers.now == plan.advised_workers
    advice = f"keep num_workers={plan.advised_workers}" if same else f"num_workers={plan.advised_workers}"
    kind = _KINDS[plan.kind] if plan.kind else "computing or waiting: not recorded"
    if plan.turn_us:
        kind = "waiting for other workers is not counted"
    share = "" if plan.cpu_share is None else f", {format_share(plan.cpu_share)} of it on the CPU"
    lines = [
        f"{advice}: {_change(plan.step_us, plan.advised_us)} (range {format_us(plan.low_us)} to "
        f"{format_us(plan.high_us)})",
        "",
        *_curve_lines(plan.workers, plan.advised_workers),
        "",
        *_curve_lines(plan.prefetch),
        "",
        f"a batch takes a mean {format_us(plan.batch_us)} on the slowest rank ({_SOURCES[plan.source]}){share}: {kind}",
        f"with every batch ready the step takes {format_us(plan.ready_us)}",
    ]
    if plan.turn_us:
        lines.append(
            "workers fetch one at a time (a lock, file or connection): a rank gets a batch every "
            f"{format_us(plan.turn_us)}; more workers gain nothing"
        )
    if plan.cores is None:
        lines.append("the number of cores is not recorded: state it with --now cores=N to bound the plan")
    elif plan.cores_us > plan.ready_us:
        lines.append(
            f"{plan.cores} cores per host allow no step below {format_us(plan.cores_us)}: make the batch cheaper too"
        )
    return lines


def _change(before_us: float, after_us: float) -> str:
    share = (before_us - after_us) / before_us if before_us else 0.0
    word = "less" if share >= 0 else "more"
    return f"{format_us(before_us)} -> {format_us(after_us)} per step, {format_share(abs(share))} {word}"


def _curve_lines(curve: SettingCurve, advised: float | None = None) -> list[str]:
    """One line per value: the predicted step, a bar, and a remark."""
    if not curve.points:
        return []
    most = min(max(point.step_us for point in curve.points), _CLIPPED * curve.best.step_us)
    flat = {point.value for point in curve.flat}
    lines = [f"  {curve.knob:>15}  {'step':>9}"]
    for point in curve.points:
        marks = ["now"] * (point.value == curve.now) + ["best"] * (point == curve.best)
        marks += ["advised"] * (point.value == advised)
        bar = ("█" if point.value in flat else "░") * max(1, round(_BAR * min(1.0, point.step_us / most)))
        lines.append(f"  {point.value:>15g}  {format_us(point.step_us):>9}  {bar} {', '.join(marks)}".rstrip())
    return lines


def _flat_words(curve: SettingCurve, advised: float) -> str:
    """The values as good as the best: consecutive ones as a range, others as a list; "" for the advised one alone."""
    flat = [point.value for point in curve.flat]
    if flat == [advised]:
        return ""
    at = [i for i, point in enumerate(curve.points) if point.value in flat]
    if len(flat) > 2 and at[-1] - at[0] == len(at) - 1:
        return f"; {flat[0]:g} to {flat[-1]:g} are within 2 % of the best"
    are = "is" if len(flat) == 1 else "are"
    return f"; {', '.join(f'{value:g}' for value in flat)} {are} within 2 % of the best"


command.add_command(sharding)
command.add_command(scale)
