"""What a run says of each thing that can be changed: how it is now, or why a change of it would change nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.traffic.gradients import DEFAULT_BUCKET_MIB
from ddprof.analyzers.replay.model import DEFAULT_PREFETCH
from ddprof.analyzers.settings.knobs import Knob, Setting
from ddprof.analyzers.settings.present import Present, first_bucket_mb
from ddprof.errors import UsageError
from ddprof.units import format_us

NOT_RECORDED = "not recorded"
_PROBE = "2"  # a number that every setting takes: what raises, raises for the run, not for the value


def lacking(knob: Knob, measures: Measures, now: Present) -> str:
    """Why this cannot be changed in the run, or would change nothing; "" where it can."""
    if knob.needs_ranks and (words := _peers(measures)):
        return words
    reason = _MISSING.get(knob.key)
    if reason is not None and (words := reason(measures)):
        return words
    value = knob.values if knob.is_switch else next(iter(knob.choices), _PROBE)
    ranks = measures.job.rank_ids[:1] if knob.needs_ranks else ()
    try:
        knob.changes(Setting(knob.key, value, ranks), measures, now)
    except UsageError as error:
        return str(error).removeprefix(f"{knob.key}: ")
    return ""


def current(knob: Knob, measures: Measures, now: Present) -> str:
    """Its value as recorded, or how much time there is in it; "" where a run has nothing to say of it."""
    say = _NOW.get(knob.key)
    return say(measures, now) if say is not None else ""


Reason = Callable[[Measures], str]
Say = Callable[[Measures, Present], str]


def _spans(cause: str, what: str) -> Reason:
    """Time of the host in spans of a cause, whether or not the device idles."""

    def reason(measures: Measures) -> str:
        return "" if measures.host_spans_us[cause].any() else f"no {what} in the recorded steps"

    return reason


def _peers(measures: Measures) -> str:
    return "one rank alone: it has no peers" if len(measures.job.rank_ids) < 2 else ""


_MISSING: Mapping[str, Reason] = {
    "bandwidth": lambda m: "" if m.comm.traffic else "no communication in the recorded steps",
    "loader": _spans("dataloader", "time in a DataLoader"),
    "balance": _peers,
    "sync": _spans("host_sync", "blocking call"),
    "graphs": lambda m: "" if m.kernels_per_step.any() else "no kernel is launched in the recorded steps",
    "copies": lambda m: "" if m.pageable_us.any() else "no exposed copy from pageable memory in the recorded steps",
    "stages": lambda m: "" if m.job.pipeline else "no pipeline stages found in this run",
    "gc": _spans("gc", "garbage collection"),
    "checkpoint": _spans("checkpoint", "saving, logging or evaluation"),
    "allocator": _spans("allocator", "allocation by the driver"),
}


def _per_step(values: Callable[[Measures], np.ndarray], what: str) -> Say:
    def say(measures: Measures, now: Present) -> str:
        return f"{format_us(float(values(measures).mean()))} {what} per step"

    return say


def _span_time(cause: str, what: str) -> Say:
    return _per_step(lambda m: m.host_spans_us[cause], what)


def _exposed(measures: Measures, now: Present) -> str:
    return f"{format_us(measures.comm.exposed_us)} exposed transfer per step"


def _or_unknown(value: float | None, unit: str = "", default: float | None = None) -> str:
    if value is not None:
        return f"{value:g}{unit}"
    return NOT_RECORDED + (f"; torch's default is {default:g}{unit}" if default is not None else "")


def _first_bucket(measures: Measures, now: Present) -> str:
    by_default = first_bucket_mb(now.bucket_cap_mb) if now.bucket_cap_mb is not None else None
    return _or_unknown(now.first_bucket_mb, " MiB", by_default)


def _microbatches(measures: Measures, now: Present) -> str:
    pipeline = measures.job.pipeline
    return "" if pipeline is None else NOT_RECORDED if pipeline.unsure else str(pipeline.microbatches)


def _chunks(measures: Measures, now: Present) -> str:
    pipeline = measures.job.pipeline
    return "" if pipeline is None else NOT_RECORDED if pipeline.unsure else str(pipeline.interleave)


def _stages(measures: Measures, now: Present) -> str:
    pipeline = measures.job.pipeline
    if pipeline is None:
        return ""
    work = [float(measures.stage_work_us[list(stage)].mean()) for stage in pipeline.stages]
    return f"{format_us(min(work))} to {format_us(max(work))} of work per step"


_NOW: Mapping[str, Say] = {
    "bandwidth": _exposed,
    "compute": _per_step(lambda m: m.cause_us("compute"), "compute"),
    "loader": _span_time("dataloader", "in the loader"),
    "sync": _span_time("host_sync", "in blocking calls"),
    "copies": _per_step(lambda m: m.pageable_us, "exposed pageable copies"),
    "gc": _span_time("gc", "in collections"),
    "checkpoint": _span_time("checkpoint", "saving, logging and evaluating"),
    "allocator": _span_time("allocator", "in allocations"),
    "stages": _stages,
    "bucket_cap_mb": lambda m, now: _or_unknown(now.bucket_cap_mb, " MiB", DEFAULT_BUCKET_MIB),
    "first_bucket_mb": _first_bucket,
    "num_workers": lambda m, now: _or_unknown(now.num_workers),
    "prefetch_factor": lambda m, now: _or_unknown(now.prefetch_factor, "", DEFAULT_PREFETCH),
    "precision": _per_step(lambda m: m.fp32_gemm_us, "in fp32 products"),
    "optimizer": _per_step(lambda m: m.optimizer_us, "on the device"),
    "microbatches": _microbatches,
    "interleave": _chunks,
}
