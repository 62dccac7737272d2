"""Present settings of a run, from capture or stated by the user, in numbers and in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from msgspec import Struct

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.traffic.kinds import DEFAULT_BUCKET_MIB, DEFAULT_FIRST_BUCKET_MIB
from ddprof.analyzers.replay.model import DEFAULT_PREFETCH
from ddprof.errors import UsageError
from ddprof.units import format_us
from ddprof.untrusted.suggestions import meant

NOW_KEYS = ("num_workers", "prefetch_factor", "bucket_cap_mb", "first_bucket_mb", "cores")


class Present(Struct, frozen=True):
    """The settings a run had; None where neither capture nor the user states them."""

    num_workers: int | None = None
    prefetch_factor: int | None = None
    bucket_cap_mb: float | None = None
    first_bucket_mb: float | None = None
    cores: int | None = None  # of a host

    def workers(self) -> int:
        """DataLoader workers of the run. Raises UsageError where they are not known."""
        if self.num_workers is None:
            raise UsageError("num_workers: how many the run had is not recorded; state it with --now num_workers=N")
        return self.num_workers

    def prefetch(self) -> int:
        """`prefetch_factor` of the run, torch's default where it is not known."""
        return self.prefetch_factor or DEFAULT_PREFETCH


def parse_now(stated: Mapping[str, str]) -> dict[str, float]:
    """`--now` settings as numbers. Raises UsageError on an unknown key or a value that is not a number >= 0."""
    numbers = {}
    for key, text in stated.items():
        if key not in NOW_KEYS:
            raise UsageError(f"--now {key}: unknown{meant(key, NOW_KEYS) or '; known: ' + ', '.join(NOW_KEYS)}")
        numbers[key] = number(key, text, least=0.0)
    return numbers


def number(key: str, text: str, least: float, most: float = 1e9) -> float:
    """A number in a range, `2x` allowed for 2. Raises UsageError."""
    try:
        value = float(text.strip().removesuffix("x"))
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        raise UsageError(f"{key}={text}: want a number from {least:g} to {most:g}")
    return value


def present(measures: Measures, stated: Mapping[str, float]) -> Present:
    """The run's settings; stated ones override captured ones."""
    captured = measures.settings
    loader = captured.loader

    def whole(key: str, recorded: int | None) -> int | None:
        value = stated.get(key, recorded)
        return None if value is None else int(value)

    def mebibytes(key: str, recorded: float | None) -> float | None:
        value = stated.get(key, recorded)
        return None if value is None else round(value, 4)  # DDP keeps whole bytes: 0.1 comes back as 0.099999

    return Present(
        num_workers=whole("num_workers", loader.num_workers),
        prefetch_factor=whole("prefetch_factor", loader.prefetch_factor),
        bucket_cap_mb=mebibytes("bucket_cap_mb", captured.ddp.bucket_cap_mb),
        first_bucket_mb=mebibytes("first_bucket_mb", captured.ddp.first_bucket_mb),
        cores=whole("cores", captured.processors.usable),
    )


def first_bucket_mb(cap_mb: float) -> float:
    """DDP's first bucket: 1 MiB, but only where the cap is left at its default (torch 2.13, `distributed.py`)."""
    return DEFAULT_FIRST_BUCKET_MIB if cap_mb == DEFAULT_BUCKET_MIB else cap_mb


# Recorded state of each setting in words, and reasons why a change would have no effect.

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
