"""Kernels of the same ranks run slower than their peers' for the same work.

What it detects: kernels of one name and shape last longer on some ranks than on the typical peer. They do so in every
step, or from some step of the recording to its end. The other ranks wait for them in collectives.
Why it costs: a synchronous step lasts as long as its slowest rank; all others wait in the next collective.
How the gain is priced: the run is replayed with those ranks' kernels as fast as their peers'.
How to fix: look at the device: clocks, temperature, power cap, ECC errors, a neighbour on the same GPU; replace or
cordon the node. Where `ddprof run` sampled the GPUs, the finding says what held this one back, and more often than its
peers. That is the power limit, heat or the node's power brake, and the fix goes by it.
Limits: kernels beside communication are compared only with their like. Against other stages of a pipeline kernels must
be slower alike by 5 % at least: a stage with more layers launches more of them, and is pipeline.imbalance. With one
step, work that happens to be unequal cannot be told from a slow device. Nor can it within five standard errors where
all ranks' work varies by step. Of CPU ranks one step, and what is left of a damaged file, are not judged. A rank that
is fed more (elements of its batches, bytes copied to its device) is straggler.imbalance.
Sources: GREYHOUND (ATC'25) fail-slow study; NVRx straggler scores; OSDI'25 "Understanding Stragglers" section 5.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

import numpy as np
from msgspec import Struct

from ddprof import averages
from ddprof.analyzers.execution.choose import execution_of
from ddprof.analyzers.job.input_size import fed_ratio, is_fed_more
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.script.alone import all_lateness_us
from ddprof.analyzers.job.script.threads import threads_alone
from ddprof.analyzers.job.slowdown import Slowdown
from ddprof.analyzers.job.whole_run.cpu_waits import BUSY_SHARE, run_shares
from ddprof.analyzers.job.whole_run.hardware import throttled_share
from ddprof.analyzers.rules.evidence.spans import charged_us, largest_wait
from ddprof.analyzers.rules.evidence.stages import unknown_peers
from ddprof.finding_ids import STRAGGLER_COMPUTE
from ddprof.findings import WARNING_SHARE, Abstention, Basis, Candidate, Change, Evidence, Fix, Rule
from ddprof.sidecar import GpuTally
from ddprof.tables import Array
from ddprof.units import format_ranks, format_share
from ddprof.whose import few

# Reasons for a slow device, as its driver reported them during the job, as evidence and a fix.

MIN_SAMPLES = 10  # busy seconds; fewer do not represent a run
MIN_SHARE = 0.10  # of the busy samples, and above the typical peer's share: cards at full load touch their power cap
MIN_CLOCK_GAP = 0.03  # below the typical peer's mean clock
MIN_LIMIT_GAP = 0.05  # below the typical peer's power limit

_REASONS = {
    "sw_power_cap": "its power limit",
    "sw_thermal": "the driver's thermal limit",
    "hw_thermal": "the hardware's thermal limit",
    "hw_power_brake": "the power brake of its node",
    "hw_slowdown": "the hardware",
}
_HEAT = ("sw_thermal", "hw_thermal")
_SOURCE = "nvmlDeviceGetCurrentClocksThrottleReasons, once a second by ddprof run"


def of_slow_device(measures: Measures, slow: Sequence[int]) -> tuple[list[Evidence], Fix | None]:
    """Driver reports on slow ranks' devices, and the fix that follows.

    `slow`: positions, the slowest first. ([], None) where no slow device was sampled. Where none was throttled the
    fix is None, and the reports are those on the slowest.
    """
    gpus = {p: gpu for p, facts in enumerate(measures.job.ranks) if (gpu := facts.sidecar.hardware.gpu) is not None}
    sampled = {p: gpu for p, gpu in gpus.items() if (gpu.busy_samples or 0) >= MIN_SAMPLES}
    peers = [gpu for p, gpu in sampled.items() if p not in slow]
    of_slowest: list[Evidence] = []
    for position in filter(sampled.__contains__, slow):
        rank, gpu = measures.job.rank_ids[position], sampled[position]
        reason, limit_w = _reason(gpu, peers), _higher_limit_w(gpu, peers)
        evidence = [Evidence(text, rank) for text in _observations(gpu, peers, reason, limit_w)]
        if reason is not None or limit_w is not None:
            return evidence, _fix(rank, gpu, reason, limit_w)
        of_slowest = of_slowest or evidence
    return of_slowest, None


def _observations(gpu: GpuTally, peers: Sequence[GpuTally], reason: str | None, limit_w: float | None) -> Iterator[str]:
    """Reports on a device in words; `reason` for which it is throttled, and the higher limit of its peers, if any."""
    if reason is not None:
        beside = f", the typical peer's in {format_share(_typical_share(peers, reason))}" if peers else ""
        held, of = format_share(throttled_share(gpu, reason)), gpu.busy_samples
        yield f"its GPU was throttled by {_REASONS[reason]} in {held} of {of} busy seconds of the run{beside}"
    typical_mhz = _typical([peer.sm_clock_mhz for peer in peers])
    if gpu.sm_clock_mhz and typical_mhz and gpu.sm_clock_mhz < (1 - MIN_CLOCK_GAP) * typical_mhz:
        yield f"its GPU ran at {gpu.sm_clock_mhz:.0f} MHz on average, the typical peer's at {typical_mhz:.0f} MHz"
    elif reason is None and gpu.sm_clock_mhz and typical_mhz:
        yield (
            f"its GPU runs at its peers' clock ({gpu.sm_clock_mhz:.0f} MHz), throttled no more than they are in "
            f"{gpu.busy_samples} busy seconds; another process on the device, or memory errors, may slow it"
        )
    if limit_w is not None:
        yield f"its power limit is {(gpu.power_limit_mw or 0) / 1e3:.0f} W, the typical peer's {limit_w:.0f} W"


def _reason(gpu: GpuTally, peers: Sequence[GpuTally]) -> str | None:
    """Reason for throttling in a clear share of the device's samples, clearly more than on its peers; else None."""
    for reason in sorted(gpu.throttled, key=lambda reason: -gpu.throttled[reason]):
        share = throttled_share(gpu, reason)
        if reason in _REASONS and share >= MIN_SHARE and share - _typical_share(peers, reason) >= MIN_SHARE:
            return reason
    return None


def _fix(rank: int, gpu: GpuTally, reason: str | None, limit_w: float | None) -> Fix:
    index = gpu.index or 0
    device = f"GPU {index} of the host of rank {rank}"
    if limit_w is not None:
        return Fix(
            setting=f"power limit of {device}",
            current=f"{(gpu.power_limit_mw or 0) / 1e3:.0f} W",
            suggested=f"{limit_w:.0f} W, as on its peers",
            patch=f"nvidia-smi -i {index} -pl {limit_w:.0f}   # on that host",
            why="a device that may draw less power runs at lower clocks",
            source=_SOURCE,
        )
    if reason in _HEAT:
        return Fix(
            setting=f"cooling of {device}",
            current=None if gpu.temperature_max_c is None else f"{gpu.temperature_max_c:.0f} °C at most",
            suggested="check airflow, fans and inlet temperature of that node; cordon it until it stays cool",
            patch=f"nvidia-smi -i {index} -q -d TEMPERATURE,PERFORMANCE",
            why="it lowers its clock because it is too hot",
            source=_SOURCE,
        )
    return Fix(
        setting=f"power of {device}",
        suggested="check the power supply of that node and the device itself; replace it if it stays slow",
        patch=f"nvidia-smi -i {index} -q -d POWER,CLOCK,PERFORMANCE",
        why=f"{_REASONS[reason or 'hw_slowdown']} holds its clock down, and not its peers'",
        source=_SOURCE,
    )


def _higher_limit_w(gpu: GpuTally, peers: Sequence[GpuTally]) -> float | None:
    """The typical peer's power limit, where this device's is clearly below it."""
    own, typical = gpu.power_limit_mw, _typical([peer.power_limit_mw for peer in peers])
    is_lower = own is not None and typical is not None and own < (1 - MIN_LIMIT_GAP) * typical
    return typical / 1e3 if is_lower and typical is not None else None


def _typical_share(peers: Sequence[GpuTally], reason: str) -> float:
    return _typical([throttled_share(peer, reason) for peer in peers]) or 0.0


def _typical(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


NOISE_FACTOR = 4.0  # standard deviations (robust ones) of the ranks' spread, or of the steps before and after an onset
STICKY_SHARE = 0.5  # in at least this share of its excess in nearly every step, else it is not the rank
SURE = 5.0  # standard errors, which are known from few steps only, of the mean of work that varies by step
LEAST_STEPS = 3  # that tell how much it varies
# Steps that differ by chance alone are parted completely with three on each side in one order of twenty (6 choose 3),
# so the distance must be clear of the scatter on both sides, too.
FEWEST_STEPS = 3


def slow_positions(slowdown: Slowdown, min_excess: float, enough: float = np.inf) -> Array:
    """Sorted positions with a steady slowdown against their peers; may be empty.

    Steadily: in nearly every step by STICKY_SHARE of the typical excess, or by `enough`, and by more than the mean of
    as many steps differs by chance where the work of all ranks varies from step to step.
    """
    factor = slowdown.factor
    usable = np.isfinite(factor)
    if usable.sum() < 2:
        return np.empty(0, np.int64)
    typical = averages.typical(factor[usable])
    spread = averages.NORMAL_MAD * averages.typical(np.abs(factor[usable] - typical))
    excess = factor - typical
    steady = np.zeros(len(factor), bool)
    for p in np.flatnonzero(excess > max(min_excess, NOISE_FACTOR * spread, _by_chance(slowdown, usable))):
        steps = slowdown.per_step[p][np.isfinite(slowdown.per_step[p])] - typical
        steady[p] = np.quantile(steps, 0.1) >= min(STICKY_SHARE * excess[p], enough)
    return few(np.flatnonzero(steady), usable.sum())


def _by_chance(slowdown: Slowdown, usable: Array) -> float:
    """Largest excess of the mean step of a rank whose work varies as that of the ranks that vary less than others."""
    steps = slowdown.per_step[usable]
    steps = steps[np.isfinite(steps).sum(axis=1) >= LEAST_STEPS]
    if not len(steps):
        return 0.0
    errors = np.nanstd(steps, axis=1, ddof=1) / np.sqrt(np.isfinite(steps).sum(axis=1))
    return SURE * float(np.quantile(errors, 0.5, method="lower"))


def slowed_down(measures: Measures) -> dict[int, Onset]:
    """Positions of ranks whose devices became slow during the recording and stayed so, with the onset.

    Equal kernels are compared, so their work did not change; no other rank may show such a step.
    """
    slowdown, least = measures.compute, execution_of(measures.job).limits.min_compute_excess
    usable = np.isfinite(slowdown.per_step).all(axis=1)
    if usable.sum() < 2:
        return {}
    excess = slowdown.per_step - averages.typical_row(slowdown.per_step[usable])
    onsets = {p: onset(excess[p], least) for p in np.flatnonzero(usable & ~slowdown.has_more).tolist()}
    rose = {p: since for p, since in onsets.items() if since is not None}
    return rose if len(rose) <= usable.sum() / 2 else {}


def slow_devices(measures: Measures) -> dict[int, float]:
    """Positions of ranks with slow devices -> slowdown of equal kernels (1.3: 30 % longer).

    A rank that is late by code that it alone runs has no slow device (`Measures.alone`). Peers are the ranks of its
    stage and, as a whole stage may be slow or have one rank, the other stages.
    """
    job, limits = measures.job, execution_of(measures.job).limits
    slow: dict[int, float] = {}
    other = [*not_slow(measures), *(shard.position for shard in measures.hot)]
    for slowdown in (measures.compute, measures.pace):
        chosen = slow_positions(slowdown, limits.min_compute_excess, limits.sure_compute_excess)
        chosen = chosen[~slowdown.has_more[chosen] & ~is_fed_more(job.ranks, slowdown.factor)[chosen]]
        chosen = np.setdiff1d(chosen, other)
        typical = averages.typical(slowdown.factor[np.isfinite(slowdown.factor)]) if len(chosen) else 1.0
        for p in chosen.tolist():
            slow[p] = max(slow.get(p, 1.0), float(slowdown.factor[p] / typical))
    fed = is_fed_more(job.ranks, measures.compute.factor)
    for p, since in slowed_down(measures).items():
        if p not in other and not fed[p]:
            slow.setdefault(p, 1.0 + since.excess)
    return slow


def not_slow(measures: Measures) -> list[int]:
    """Positions of CPU ranks late by a line or thread that they alone run: their operators wait for the interpreter."""
    beside = threads_alone(measures.job.ranks) if execution_of(measures.job).computes_on_host else {}
    return [*measures.alone, *beside]


def detect(measures: Measures) -> Iterator[Candidate | Abstention]:
    """Find ranks with a steady compute excess over their peers."""
    job, slowdown = measures.job, measures.compute
    if len(job.ranks) < 2:
        yield Abstention(RULE.id, "only one rank was traced, so ranks cannot be compared")
        return
    if unknown := unknown_peers(measures):
        yield Abstention(RULE.id, unknown)
        return
    if execution_of(job).computes_on_host and any(facts.torn_steps or len(facts.steps) == 1 for facts in job.ranks):
        yield Abstention(RULE.id, "a single step, or a damaged file, cannot show a slow core beyond chance")
        return
    slow = slow_devices(measures)
    if not np.isfinite(slowdown.factor).any() and not np.isfinite(measures.pace.factor).any():
        yield Abstention(RULE.id, "no two ranks run the same kernels, so none can be called slow")
        return
    execution = execution_of(job)
    if execution.computes_on_host:
        # A CPU's operators scatter, and of few steps by a third: a rank that nobody waits for is not slow.
        late = all_lateness_us(job.ranks, job.blame) >= WARNING_SHARE * measures.step_us
        slow = {p: factor for p, factor in slow.items() if late[p]}
    chosen = np.array(sorted(slow), np.int64)
    if not len(chosen):
        return
    factors = [slow[p] for p in chosen.tolist()]
    numbers = measures.ranks(chosen)
    slowest = sorted(slow, key=lambda p: -slow[p])
    worst = slowest[0]
    whose = "their peers" if np.isfinite(slowdown.factor[chosen]).any() else "the other stages of the pipeline"
    since = slowed_down(measures).get(worst)
    first = None if since is None else int(job.ranks[worst].steps["index"][since.step])
    when = f"in each of {measures.steps} steps"
    if since is not None:
        when = f"from step {first} on, {measures.steps - since.step} of {measures.steps}"
    said, cure = of_slow_device(measures, slowest)
    yield Candidate(
        id=RULE.id,
        summary=f"{execution.work_noun} on {format_ranks(numbers)} take "
        f"{'up to ' if len(numbers) > 1 else ''}{format_share(max(factors) - 1)} longer "
        f"than on {whose}" + ("" if first is None else f" since step {first}"),
        ranks=numbers,
        lost_us=charged_us(measures, chosen.tolist()),
        changes=(Change("scale_compute", numbers, tuple(factors), "peers"),),
        basis=Basis.COMPARED,
        evidence=(
            Evidence(
                f"the same {execution.work_noun} take {max(factors):.2f}x the typical peer's time {when}",
                job.rank_ids[worst],
            ),
            *said,
            *_lacked(measures, worst),
            *largest_wait(measures, worst),
        ),
        fixes=(cure,) if cure is not None else _looks(measures, numbers, first),
    )


def _lacked(measures: Measures, position: int) -> Iterator[Evidence]:
    """Evidence of something else on the cores of a CPU rank that has its own."""
    shares = run_shares(measures.job.ranks)
    if shares.lacked_alone(position) >= BUSY_SHARE:
        waited = format_share(float(shares.waited[position]))
        peers = format_share(shares.peers_waited(position))
        words = (
            f"it was ready to run and had no CPU for {waited} of the run, its peers for {peers}: something else runs"
        )
        yield Evidence(f"{words} on its cores", measures.job.rank_ids[position])


def _looks(measures: Measures, numbers: tuple[int, ...], first: int | None) -> tuple[Fix, ...]:
    """Places to inspect; includes the input of CPU ranks where it was not recorded. `first`: the first slow step."""
    on_host = execution_of(measures.job).computes_on_host
    look = _look(numbers, on_host, "in every step" if first is None else f"in every step since step {first}")
    return (look,) if not on_host or np.isfinite(fed_ratio(measures.job.ranks)).any() else (look, _fed(numbers))


def _fed(numbers: tuple[int, ...]) -> Fix:
    return Fix(
        setting="what " + format_ranks(numbers) + (" is fed" if len(numbers) == 1 else " are fed"),
        suggested="as much as the other ranks: samples of like lengths in each batch",
        why="batch sizes were not recorded, and the same operators also take longer for longer samples",
        source="torch.utils.data.distributed.DistributedSampler documentation; OSDI'25 section 5",
    )


def _look(numbers: tuple[int, ...], computes_on_host: bool, when: str) -> Fix:
    if computes_on_host:
        return Fix(
            setting="cores of " + format_ranks(numbers),
            suggested="as many and as fast as its peers': no quota, no pinning to shared cores, nothing else on them",
            patch="taskset -cp PID; cat /sys/fs/cgroup/cpu.max /proc/pressure/cpu; cpupower frequency-info",
            why=f"the same operators take longer there {when}",
            source="Linux kernel documentation: control group v2 (cpu.max), pressure stall information",
        )
    return Fix(
        setting="device of " + format_ranks(numbers),
        suggested="check clocks, power cap, temperature and neighbours; replace the node if it stays slow",
        patch="nvidia-smi -q -d CLOCK,PERFORMANCE,POWER,TEMPERATURE,ECC",
        why=f"the same work takes longer there {when}, so the device is slow, not the data",
        source="GREYHOUND (ATC'25): 10 minutes and 11.8 % of job time lost per compute fail-slow on average",
    )


class Onset(Struct, frozen=True):
    """The first slow step (position), and the median excess over the peers since then: 0.3 is 30 % longer."""

    step: int
    excess: float


def onset(excess: Array, least: float) -> Onset | None:
    """The step at which one rank's excess, shape (steps,), rises by `least` and stays; None without one.

    Of all places it has the widest distance between the slowest step before and the fastest one after.
    """
    steps = len(excess)
    if steps < 2 * FEWEST_STEPS or not np.isfinite(excess).all():
        return None
    highest_before = np.maximum.accumulate(excess)[:-1]
    lowest_after = np.minimum.accumulate(excess[::-1])[::-1][1:]
    places = np.arange(FEWEST_STEPS, steps - FEWEST_STEPS + 1)
    distance = (lowest_after - highest_before)[places - 1]
    at = int(places[np.argmax(distance)])
    before, after = float(np.median(excess[:at])), float(np.median(excess[at:]))
    scatter = np.concatenate((excess[:at] - excess[:at].mean(), excess[at:] - excess[at:].mean()))
    spread = float(np.sqrt((scatter**2).sum() / (steps - 2)))  # of both sides: two means were taken from the steps
    is_clear = distance.max() > 0 and after - before > max(least, NOISE_FACTOR * spread)
    return Onset(at, after) if is_clear and after > least else None


RULE = Rule(STRAGGLER_COMPUTE, "Some ranks' devices are slower", detect, bound="straggler", compares_ranks=True)
