"""Reasons for exposed transfer: one classification for all communication rules, so that no two claim one transfer."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from ddprof.analyzers.execution.choose import execution_of
from ddprof.analyzers.facts.script.calls import called_by_script
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.traffic.cost import LATENCY_BOUND_RATE, CostModel, bus_factor, fit_cost
from ddprof.analyzers.job.traffic.kinds import DEFAULT_BUCKET_MIB, DEFAULT_FIRST_BUCKET_MIB, GRADIENT_ROLES
from ddprof.analyzers.job.traffic.statistics import FASTEST_CALLS, CommStats, Traffic
from ddprof.analyzers.job.waiting.waits import UNSEEN_FACTOR
from ddprof.analyzers.job.whole_run.missing_ranks import late_missing_rank, timers_complete
from ddprof.analyzers.replay.changes.communication.transfers import ENOUGH_COMPUTE
from ddprof.findings import CRITICAL_SHARE, Abstention, Basis
from ddprof.tables import Array
from ddprof.units import MIB, format_us

LATENCY_COVERS = 0.9  # of the exposed transfer, which the latencies of all calls add up to
MIN_CALLS = 5  # per step, for latency: DistributedDataParallel's first and last bucket of two models are four
FEW_CALLS = 2  # the same, where a recorded bucket size cuts up what the default sends at once
TINY_BYTES = 128 * 2**10  # per call; moves in 1 ms at 1 Gbit/s, so that a longer call does not take long for its bytes
SMALL_BYTES = 10 * MIB  # per call; far below DDP's 25 MiB default bucket
# About the bus bandwidth of NCCL's all-reduce on 8 x H100 SXM: a call that is too short for a default bucket even there
# carries less than one.
FASTEST_BUS_BYTES_PER_S = 480e9
MANY_CALLS = 32  # per step
EQUAL_SHARE = 0.9  # of the typical call's time, which the shortest call takes
FEW_MISSING = 0.25  # of the ranks: a file that was lost, not a sample
HIDDEN_SHARE = 0.12  # of the transfer: less is "no overlap"; DDP's defaults hide 60 % and more
LATENCY_SHARE = 0.5  # of the transfer that is per-call latency
FASTEST = 0.9  # quantile of the rates that a link is known by: the fastest message of all may be a fluke
HOST_BYTES_PER_US = 15_750.0  # PCIe 3.0 x16 (PCI-SIG): devices of one host are seldom joined by less
# NCCL's base and hop latencies (tuning.cc) add up to 20 to 40 us in a node; what is an order of magnitude longer is
# rather a link that is slower than PCIe should be.
MOST_IN_HOST_US = 300.0


class Exposure(Struct, frozen=True):
    """Exposed traffic of one kind, the reason, and its cost model where message sizes allow one."""

    traffic: Traffic
    model: CostModel | None
    reason: str  # "latency" | "no_overlap" | "bandwidth" | "sharding"
    doubt: str | None = None  # why its transfer may be waiting for ranks without a trace

    @property
    def latency_share(self) -> float:
        """Share of the transfer that is per-call latency; NaN without a cost model."""
        if self.model is None:
            return float("nan")
        return min(1.0, self.model.alpha_ns / 1e3 / max(typical_us(self.traffic), 1e-9))


def exposures(measures: Measures) -> list[Exposure]:
    """Every kind of clearly exposed traffic with its reason, largest first."""
    exposed = []
    limits = execution_of(measures.job).limits
    for traffic in measures.comm.traffic:
        if traffic.role == "unmatched":  # only one member was traced, and waiting is not told from moving data
            continue
        if traffic.op == "barrier" or traffic.needless:
            continue  # what could go has rules' words of its own (evidence/redundant)
        if traffic.role == "pp" and traffic.exposed_us < CRITICAL_SHARE * measures.step_us:
            continue  # the first and the last message of a step are exposed in any pipeline
        if traffic.exposed_us < limits.min_exposed_share * measures.step_us:
            continue
        model = fit_cost(traffic.sizes_bytes, traffic.times_us * 1e3)
        reason = _reason(traffic, model, measures)
        if reason == "latency" and traffic.role not in GRADIENT_ROLES:
            continue  # activations between layers (tensor, expert parallel): each call waits for the one before
        # Many small units of a sharded model: their latency is the cost, which their own rules tell.
        of_number = reason == "latency" or (reason == "sharding" and traffic.count >= MANY_CALLS)
        if not of_number and 0 < traffic.mean_bytes < TINY_BYTES:
            continue  # a few tiny messages: neither their bytes nor their number can be what exposes them
        # A little volume more likely waits for missing ranks than for the link; among ranks of one host for a core.
        is_volume = traffic.total_bytes >= limits.min_volume_bytes or (traffic.is_whole and traffic.crosses_hosts)
        if not of_number and not is_volume:
            continue
        doubt = None if traffic.is_whole or reason == "latency" else _doubt(measures, traffic)
        exposed.append(Exposure(traffic, model, reason, doubt))
    return exposed


def _reason(traffic: Traffic, model: CostModel | None, measures: Measures) -> str:
    if traffic.role == "pp":
        return "bandwidth"  # one message between two passes: fewer of them would hold more
    fewest = FEW_CALLS if _is_cut_up(traffic, measures.settings.ddp.bucket_cap_mb) else MIN_CALLS
    small = 0 < traffic.mean_bytes < SMALL_BYTES and traffic.count >= fewest
    latency = traffic.mean_bytes < TINY_BYTES or (model is not None and _latency_holds(traffic, model))
    # What a script reduces one by one between its passes has no pass to hide behind: together it has one latency.
    if model is not None:
        latency |= bool(called_by_script(measures.job.ranks[0], traffic.op, traffic.count).any())
    sharded = traffic.role == "fsdp_shard" and traffic.op in ("all_gather", "reduce_scatter")
    if small and (latency or (model is None and is_slow_for_size(traffic, measures.comm))) and not sharded:
        return "latency"
    if not traffic.total_bytes and (_below_default_bucket(traffic) or _equal_times(traffic)):
        return "latency"
    if sharded:
        return "sharding"
    if traffic.op == "all_reduce" and traffic.role in GRADIENT_ROLES and _could_hide(traffic, measures):
        return "no_overlap"
    return "bandwidth"


def _is_cut_up(traffic: Traffic, bucket_cap_mb: float | None) -> bool:
    """True where DDP's recorded bucket size makes at least twice the calls that its default would. A bucket is closed
    once it holds that size: smaller messages are of passes with one bucket each.
    """
    if bucket_cap_mb is None or bucket_cap_mb >= DEFAULT_BUCKET_MIB or traffic.role not in GRADIENT_ROLES:
        return False
    if not len(traffic.sizes_bytes) or np.median(traffic.sizes_bytes) < bucket_cap_mb * MIB:
        return False
    beyond_first = max(0.0, traffic.total_bytes / MIB - DEFAULT_FIRST_BUCKET_MIB)
    return bool(traffic.count >= 2 * (1 + np.ceil(beyond_first / DEFAULT_BUCKET_MIB)))


def _latency_holds(traffic: Traffic, model: CostModel) -> bool:
    """True where latency is most of a call, or hardly anything would be exposed without it."""
    alpha_us = model.alpha_ns / 1e3
    return (
        alpha_us >= LATENCY_SHARE * typical_us(traffic)
        or traffic.count * alpha_us >= LATENCY_COVERS * traffic.exposed_us
    )


def typical_us(traffic: Traffic) -> float:
    """Typical time of a call, us: the median time per message size, averaged over the messages."""
    if not len(traffic.times_us):
        return 0.0
    _, inverse = np.unique(traffic.sizes_bytes, return_inverse=True)
    medians = np.array([np.median(traffic.times_us[inverse == i]) for i in range(int(inverse.max()) + 1)])
    return float(medians[inverse].mean())


def _below_default_bucket(traffic: Traffic) -> bool:
    """True where many gradient calls of unknown size are each too short for DDP's default bucket."""
    if traffic.op != "all_reduce" or traffic.role not in GRADIENT_ROLES or traffic.count < MANY_CALLS:
        return False
    members = max(2, traffic.group_size)
    least_us = DEFAULT_BUCKET_MIB * MIB * 2 * (members - 1) / members / FASTEST_BUS_BYTES_PER_S * 1e6
    return typical_us(traffic) < least_us


def _equal_times(traffic: Traffic) -> bool:
    """True where gradient buckets of unknown size, small first and last ones included, take equal times."""
    if traffic.op != "all_reduce" or traffic.role != "dp" or traffic.count < MIN_CALLS or not len(traffic.times_us):
        return False
    return float(traffic.times_us.min()) >= EQUAL_SHARE * typical_us(traffic)


def _could_hide(traffic: Traffic, measures: Measures) -> bool:
    """True where hardly anything is hidden although the backward pass is long enough to hide a good part."""
    compute = float(np.median(measures.stage_work_us))
    return traffic.hidden_share < HIDDEN_SHARE and compute > ENOUGH_COMPUTE * traffic.transfer_us


def of_reason(measures: Measures, reason: str) -> list[Exposure]:
    """Exposures with one reason, except those that may be waits for missing ranks."""
    return [e for e in exposures(measures) if e.reason == reason and e.doubt is None]


def doubtful(measures: Measures, rule_id: str, reason: str) -> list[Abstention]:
    """Abstentions of the reason's rule on exposures that may be waits for missing ranks."""
    doubts: dict[str, float] = {}
    for exposure in exposures(measures):
        if exposure.reason == reason and exposure.doubt is not None:
            doubts[exposure.doubt] = doubts.get(exposure.doubt, 0.0) + exposure.traffic.exposed_us
    return [Abstention(rule_id, f"{format_us(us)} per step of {words}") for words, us in doubts.items()]


def stands_on(*exposures: Exposure) -> Basis:
    """The basis of a finding on exposures: deduced where members of the groups, or sizes, are missing."""
    is_complete = all(e.traffic.is_whole and e.traffic.total_bytes for e in exposures)
    return Basis.RECORDED if is_complete else Basis.DEDUCED


def _doubt(measures: Measures, traffic: Traffic) -> str | None:
    """Reason why transfer with missing members may be waiting for them; None where their step timers or the bytes
    refute it, or where few are missing and most bytes move at one rate, as on a busy link.
    """
    late = late_missing_rank(measures.job)
    if late is not None:
        return f"communication may be waiting: {late.words}"
    count = len(measures.job.missing_ranks)
    if (count and timers_complete(measures.job)) or traffic.is_all_transfer:
        return None
    if count <= FEW_MISSING * measures.job.world_size and _moves_at_one_rate(traffic):
        return None
    # No rank is missing where the files of some lack the record.
    who = {0: "ranks that did not record it", 1: "1 missing rank"}.get(count, f"{count} missing ranks")
    return f"communication includes {who}: waiting and transfer cannot be separated"


def _moves_at_one_rate(traffic: Traffic) -> bool:
    """True where the transfers take little more in total than at the rate of the fastest calls.

    The rest would be waiting. A single call has no rate to compare with.
    """
    timed = traffic.times_us > 0
    if timed.sum() < 2:
        return False
    times, sizes = traffic.times_us[timed], np.maximum(traffic.sizes_bytes[timed], 1)
    fastest = float(np.quantile(times / sizes, FASTEST_CALLS))
    return bool(times.sum() <= UNSEEN_FACTOR * fastest * sizes.sum())


def is_slow_for_size(traffic: Traffic, comm: CommStats) -> bool:
    """True where the typical message spends most of its time on something other than its bytes.

    Messages of one size cannot separate latency from bandwidth. But a link that moved other messages of these groups
    faster, or that joins devices of one host, has a known least bandwidth; time beyond the bytes at that rate is
    latency.
    """
    is_sized = (traffic.sizes_bytes > 0) & (traffic.times_us > 0)
    if not is_sized.any():
        return False
    size, took_us = float(np.median(traffic.sizes_bytes[is_sized])), float(np.median(traffic.times_us[is_sized]))
    if size / took_us < LATENCY_BOUND_RATE * 1e3:
        return True
    factor = bus_factor(traffic.op, traffic.group_size)
    if factor is None:
        return False
    link = (traffic.role, traffic.group_size, traffic.crosses_hosts)
    on_link = (t for t in comm.traffic if (t.role, t.group_size, t.crosses_hosts) == link)
    shown = max((_rate(other) for other in on_link), default=0.0)
    if shown and took_us - size * factor / shown >= LATENCY_SHARE * took_us:
        return True
    latency_us = 0.0 if traffic.crosses_hosts else took_us - size * factor / HOST_BYTES_PER_US
    return LATENCY_SHARE * took_us <= latency_us <= MOST_IN_HOST_US


def _rate(traffic: Traffic) -> float:
    """Best rate of the traffic's links, bytes per us; 0 where sizes or factors are unknown."""
    factor = bus_factor(traffic.op, traffic.group_size)
    is_sized: Array = (traffic.sizes_bytes > 0) & (traffic.times_us > 0)
    if factor is None or not is_sized.any():
        return 0.0
    return factor * float(np.quantile(traffic.sizes_bytes[is_sized] / traffic.times_us[is_sized], FASTEST))
