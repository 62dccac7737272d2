"""Recorded state of each setting, and reasons why a change would have no effect."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.settings.present import Present, first_bucket_mb
from ddprof.units import format_us

NOT_RECORDED = "not recorded"


Reason = Callable[[Measures], str]
Say = Callable[[Measures, Present], str]


def has_spans(cause: str, what: str) -> Reason:
    """Time of the host in spans of a cause, whether or not the device idles."""

    def reason(measures: Measures) -> str:
        return "" if measures.host_spans_us[cause].any() else f"no {what} in the recorded steps"

    return reason


def has_peers(measures: Measures) -> str:
    """Reason why no rank can be brought to its peers: there is only one; "" otherwise."""
    return "one rank alone: it has no peers" if len(measures.job.rank_ids) < 2 else ""


def per_step(values: Callable[[Measures], np.ndarray], what: str) -> Say:
    """A mean time over the ranks, in words."""

    def say(measures: Measures, now: Present) -> str:
        return f"{format_us(float(values(measures).mean()))} {what} per step"

    return say


def span_time(cause: str, what: str) -> Say:
    """Time of the host in spans of a cause, in words."""
    return per_step(lambda m: m.host_spans_us[cause], what)


def exposed(measures: Measures, now: Present) -> str:
    """Exposed transfer, in words."""
    return f"{format_us(measures.comm.exposed_us)} exposed transfer per step"


def or_unknown(value: float | None, unit: str = "", default: float | None = None) -> str:
    """A value as recorded, or torch's default where it was not."""
    if value is not None:
        return f"{value:g}{unit}"
    return NOT_RECORDED + (f"; torch's default is {default:g}{unit}" if default is not None else "")


def first_bucket(measures: Measures, now: Present) -> str:
    """Size of the first bucket."""
    by_default = first_bucket_mb(now.bucket_cap_mb) if now.bucket_cap_mb is not None else None
    return or_unknown(now.first_bucket_mb, " MiB", by_default)


def microbatches(measures: Measures, now: Present) -> str:
    """Microbatches of the pipeline; "" without one."""
    pipeline = measures.job.pipeline
    return "" if pipeline is None else NOT_RECORDED if pipeline.unsure else str(pipeline.microbatches)


def chunks(measures: Measures, now: Present) -> str:
    """Chunks per stage of the pipeline; "" without one."""
    pipeline = measures.job.pipeline
    return "" if pipeline is None else NOT_RECORDED if pipeline.unsure else str(pipeline.interleave)


def stages(measures: Measures, now: Present) -> str:
    """Work of the lightest and of the heaviest stage; "" without a pipeline."""
    pipeline = measures.job.pipeline
    if pipeline is None:
        return ""
    work = [float(measures.stage_work_us[list(stage)].mean()) for stage in pipeline.stages]
    return f"{format_us(min(work))} to {format_us(max(work))} of work per step"
