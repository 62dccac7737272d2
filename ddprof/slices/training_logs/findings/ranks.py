"""Slow ranks by timers of named ranks, iteration by iteration.

Ranks of one tensor-parallel group wait for each other inside a pass, so groups are compared, each by its shortest rank,
within a pipeline stage, where they do the same work. Megatron numbers ranks tensor-parallel first and pipeline stages
last (`--use-tp-pp-dp-mapping` aside). With context or expert parallelism passes hold collectives across those groups,
and nobody is named.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from ddprof.findings import WARNING_SHARE, severity
from ddprof.report.log_reading import LogFinding
from ddprof.significance import binomial_tail
from ddprof.slices.training_logs.findings.timers import LOADING, OWN_WORK
from ddprof.slices.training_logs.model import DATA, RankReading
from ddprof.units import format_ranks, format_share, format_us

CHANCE = 0.01  # that some group is longest so often for no reason, over all groups
_BY_ONE_RANK = ("fwd", "forward")  # DeepSpeed's: ZeRO stage 3 gathers in it, so that it is told and not judged


def findings_of(
    readings: Sequence[RankReading], sizes: Mapping[str, int], whole_ms: float | None, whole: str
) -> Iterator[LogFinding]:
    """Groups that are slowest more often than chance explains, by a share of `whole` worth reporting."""
    if any(sizes.get(kind, 1) > 1 for kind in ("context", "expert")):
        return
    for name in (*OWN_WORK, DATA, *_BY_ONE_RANK):
        blocks: dict[int, dict[int, float]] = defaultdict(dict)
        for reading in readings:
            if reading.name == name:
                blocks[reading.block][reading.rank] = reading.ms
        everyone = set().union(*blocks.values())
        complete = [block for _, block in sorted(blocks.items()) if block.keys() == everyone]
        complete = complete[1:] if len(complete) > 2 else complete
        for members in _peers(sorted(complete[0]) if complete else [], sizes):
            yield from _slowest(name, complete, members, sizes, whole_ms, whole)


def _peers(ranks: Sequence[int], sizes: Mapping[str, int]) -> Iterator[list[tuple[int, ...]]]:
    """The tensor-parallel groups of each pipeline stage."""
    per_group, stages = sizes.get("tensor", 1), sizes.get("pipeline", 1)
    per_stage = max(1, (ranks[-1] + 1) // stages) if ranks else 1
    by_stage: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for rank in ranks:
        by_stage[rank // per_stage][rank // per_group].append(rank)
    for groups in by_stage.values():
        yield [tuple(group) for group in groups.values()]


def _slowest(
    name: str,
    blocks: Sequence[Mapping[int, float]],
    groups: Sequence[tuple[int, ...]],
    sizes: Mapping[str, int],
    whole_ms: float | None,
    whole: str,
) -> Iterator[LogFinding]:
    if len(groups) < 2:
        return
    times = [{group: min(block[rank] for rank in group) for group in groups} for block in blocks]
    longest = [max(groups, key=lambda group, time=time: time[group]) for time in times]  # type: ignore[misc]
    who = max(set(longest), key=lambda group: (longest.count(group), group))
    often = longest.count(who)
    if len(groups) * binomial_tail(often, len(times), 1 / len(groups)) > CHANCE:
        return
    beyond_ms = median(time[who] - median(time[group] for group in groups if group != who) for time in times)
    share = beyond_ms / whole_ms if whole_ms else 0.0
    if share < WARNING_SHARE:
        return
    judged = name == DATA or (bool(sizes) and name in OWN_WORK)
    evidence = [f"longest in {often} of {len(times)} logged iterations, {format_us(beyond_ms * 1e3)} beyond its peers"]
    if not judged:
        evidence.append("how the job is divided, or what else runs inside this timer, is not in the log")
    verb = "takes" if len(who) == 1 else "take"
    what = f"longer than {'its' if len(who) == 1 else 'their'} peers in {name}"
    summary = f"{format_ranks(who).capitalize()} {verb} {format_share(share)} of {whole} {what}"
    page = "input_straggler" if name in LOADING else "straggler_compute"
    yield LogFinding(
        "slow_rank", severity(share, 1.0) if judged else "info", summary, share, who, tuple(evidence), page
    )
