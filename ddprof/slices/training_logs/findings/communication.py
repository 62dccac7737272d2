"""Calls of a log: bus bandwidth from size and time, compared with the log's own, and the share of waiting.

Formulas: nccl-tests, PERFORMANCE.md. DeepSpeed logs the size of the input: all of it for a reduce-scatter, one
rank's part for an all-gather, which holds where the log's own rate counts it once per rank; older versions count
otherwise, and what their size means is not known. Its rates are gigabits per second, ours gigabytes; those versions
counted the bytes of some operations twice, and until 2026 those of a reduce-scatter were counted once per rank.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from ddprof.findings import severity
from ddprof.report.log_reading import LogFinding
from ddprof.slices.training_logs.model import CallRow, IterationSummary, LoggedCalls, LoggedStraggling
from ddprof.units import format_share, format_us

_BITS = 8
_HALF_A_DIGIT_MS = 0.005  # times are written with two decimals
_TOO_COARSE = 0.1  # relative: a time so rounded says too little about a rate
_MOSTLY_WAITING = 0.5  # of the communication: the larger part
ALIKE = (2 / 3, 3 / 2)  # a mean of rates and the rate of a mean differ by less; what is counted twice is twice as much
_VERB = re.compile(r"(?:inference_)?(?P<verb>all_reduce|all_gather|reduce_scatter|all_to_all)")


def rows_of(calls: Sequence[LoggedCalls], sizes: Mapping[str, int]) -> tuple[CallRow, ...]:
    """Rows of the calls, largest total first."""
    members = sizes.get("world") or _members(calls)
    return tuple(_row(call, members) for call in sorted(calls, key=lambda call: -call.total_ms))


def findings_of(straggling: Sequence[LoggedStraggling], iterations: IterationSummary | None) -> Iterator[LogFinding]:
    """Findings on waits of the writing rank for others, where these are most of its communication."""
    beyond, transfer = sum(row.beyond_ms for row in straggling), sum(row.transfer_ms for row in straggling)
    whole = beyond + transfer
    if whole <= 0 or beyond < _MOSTLY_WAITING * whole:
        return
    share = beyond / whole
    run_ms = 0.0 if iterations is None else iterations.lines * iterations.every * iterations.median_ms
    top = max(straggling, key=lambda row: row.beyond_ms)
    summary = (
        f"{format_share(share)} of the writing rank's communication is waiting for later ranks "
        f"({format_us(beyond * 1e3)} of {format_us(whole * 1e3)})"
    )
    evidence = (
        f"most in {top.op}: {format_us(top.beyond_ms * 1e3)} beyond the shortest rank in {top.count} calls",
        "at least so much: until 2026 DeepSpeed sorted the times of each rank before it compared them",
    )
    yield LogFinding("waiting", severity(beyond, run_ms) if run_ms else "info", summary, share, (), evidence)


def _members(calls: Sequence[LoggedCalls]) -> int | None:
    """Size of a group, from the log's two rates: algorithm over bus bandwidth gives (n - 1) / n."""
    votes: Counter[int] = Counter()
    for call in calls:
        if call.tput_gbps and call.busbw_gbps and call.busbw_gbps < call.tput_gbps:
            votes[round(1 / (1 - call.busbw_gbps / call.tput_gbps))] += call.count
    return votes.most_common(1)[0][0] if votes else None


def _row(call: LoggedCalls, members: int | None) -> CallRow:
    is_fine = call.size_bytes > 0 and call.mean_ms > 0 and _HALF_A_DIGIT_MS / call.mean_ms <= _TOO_COARSE
    factor = _factor(call, members) if is_fine else None
    ours = call.size_bytes * factor / (call.mean_ms * 1e6) if factor is not None else None
    logged = None if call.busbw_gbps is None else call.busbw_gbps / _BITS
    ratio = logged / ours if ours and logged else None
    return CallRow(call.op, call.size_bytes, call.count, call.total_ms, call.mean_ms, ours, logged, ratio)


def _factor(call: LoggedCalls, members: int | None) -> float | None:
    """Factor from the logged size to bytes on a rank's link; None where the group, or what was logged, is unknown."""
    match = _VERB.match(call.op)
    if match is None:
        return 1.0
    if members is None:
        return None
    if match["verb"] == "all_gather":
        counted = (call.tput_gbps or 0.0) / _BITS * call.mean_ms * 1e6 / call.size_bytes
        return float(members - 1) if ALIKE[0] < counted / members < ALIKE[1] else None
    return (members - 1) / members * (2 if match["verb"] == "all_reduce" else 1)
