"""Typical timers of an iteration, one row each with its share, and findings on them.

A timer inside another must not be added to it.

Megatron-LM (training/training.py, core/pipeline_parallel/schedules.py, core/distributed/finalize_model_grads.py):
`forward-backward` holds the passes and the messages between stages, and, since the schedule finishes the gradients
(where `all-grads-sync` exists), their reductions; `forward-compute` holds the batch generator, `optimizer` its own
parts. Until 2021 `forward` held the batch generator, `backward` its `backward-backward` and `backward-allreduce`.
DeepSpeed (runtime/engine.py): `bwd` holds `bwd_inner` and `bwd_allreduce`, `step` the optimizer's. Under
Megatron-DeepSpeed the engine's timers run inside Megatron's.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from statistics import fmean, median

from ddprof.findings import CRITICAL_SHARE, WARNING_SHARE, severity
from ddprof.report.log_reading import LogFinding
from ddprof.slices.training_logs.model import DATA, DECILES_FROM, IterationSummary, TimerReading, TimerRow
from ddprof.slices.training_logs.reading.timers import MICROSTEP
from ddprof.units import format_share, format_us

_BATCHES = ("batch-generator", "batch_input")
LOADING = (*_BATCHES, DATA)
_FORWARD = ("forward-compute", "fwd", "forward", "forward_microstep", "fwd_microstep")
_BACKWARD = ("backward-compute", "bwd", "backward", "backward_microstep", "bwd_microstep")
_OF_STEPS = re.compile(r"(?:forward|backward|fwd|bwd|optimizer|step|pipe|training|model)(?:[-_]|$)")
_OPTIMIZER = ("step", "step_microstep", "optimizer")
GENERATING = ("gen", "Generate time", "generation")  # reinforcement learning: verl's, DeepSpeed-Chat's, NeMo-RL's
# What a rank does on its own, but for collectives of its model-parallel groups: there ranks can be compared.
OWN_WORK = ("forward-compute", *_BATCHES)
SYNCHRONISING = (
    *("all-grads-sync", "grads-all-reduce", "grads-reduce-scatter", "params-all-gather", "backward-reduce-model-grads"),
    *("layernorm-grads-all-reduce", "embedding-grads-all-reduce", "backward-params-all-reduce"),
    *("backward-layernorm-all-reduce", "backward-embedding-all-reduce", "backward-gather-model-params"),
    *("bwd_allreduce", "backward_allreduce", "bwd_allreduce_microstep", "backward_allreduce_microstep"),
    *("backward-allreduce", "optimizer_allgather"),
)
# Of the first and the last stage, whose last waits in it until the first has drained the pipeline.
_OF_STAGES = ("embedding-grads-all-reduce", "backward-embedding-all-reduce")
# Timers of one iteration, each by its longest rank, can add up to a little more than the iteration.
_MORE_THAN_ALL = 1.05


def rows_of(readings: Sequence[TimerReading], iterations: IterationSummary | None) -> tuple[TimerRow, ...]:
    """The timers of an iteration, each below the one that contains it; without the first readings (warm-up)."""
    given: dict[str, list[TimerReading]] = defaultdict(list)
    for reading in readings:
        if not ONCE.search(reading.name):
            given[reading.name].append(reading)
    often = max(map(len, given.values()), default=0)
    given = {
        name: of for name, of in given.items() if DECILES_FROM * len(of) >= often
    }  # others: of the start, of saves
    if any(name.endswith(MICROSTEP) for name in given):  # beside which those of whole steps stand less often
        given = {name: of for name, of in given.items() if 2 * len(of) >= often}
    typical = {name: _typical(name, of[1:] if len(of) > 1 else of) for name, of in given.items()}
    outermost = sum(longest for name, (longest, _) in typical.items() if parent(name, typical) is None)
    waits_alone = all(name in LOADING for name in typical)
    fits = iterations is not None and _fit(outermost, iterations, waits_alone)
    median_ms, mean_ms = outermost, outermost
    if iterations and fits:
        median_ms, mean_ms = iterations.median_ms, iterations.printed_mean_ms
    # A wait alone is no share of itself; longer than an iteration, it is of the lines that print it alone
    is_judged = outermost > 0 and (fits or not waits_alone)
    return tuple(
        TimerRow(
            name,
            depth(name, typical),
            max(1, len(given[name]) - 1),
            typical[name][0],
            typical[name][1],
            typical[name][0] / (mean_ms if name in LOADING else median_ms) if is_judged else None,
            given[name][0].of_all_ranks,
        )
        for name in _in_order(typical)
    )


def is_of_iterations(rows: Sequence[TimerRow], iterations: IterationSummary | None) -> bool:
    """True where shares are of the iteration; False for longer timers, which count several iterations."""
    outermost = sum(row.longest_ms for row in rows if row.depth == 0)
    return iterations is not None and _fit(outermost, iterations, all(row.name in LOADING for row in rows))


def _fit(outermost_ms: float, iterations: IterationSummary, waits_alone: bool) -> bool:
    """True where timers are no longer than an iteration: waits than all, of which few may hold nearly all waiting."""
    longest_ms = max(iterations.median_ms, iterations.mean_ms) if waits_alone else iterations.median_ms
    return outermost_ms <= _MORE_THAN_ALL * longest_ms


def findings_of(rows: Sequence[TimerRow], whole: str, sizes: Mapping[str, int]) -> Iterator[LogFinding]:
    """Findings on loading, pipelines, exposed communication, and unequal ranks. `whole`: the base of the shares."""
    yield from _loading(rows, whole)
    yield from _generating(rows, whole)
    yield from _optimizing(rows, whole)
    yield from _beside(rows, whole)
    between = _between_stages(rows)
    yield from _pipeline(between, whole, sizes)
    yield from _synchronising(rows, [row.name for row in between], whole)
    yield from _apart(rows, whole, sizes.get("pipeline"))


def _loading(rows: Sequence[TimerRow], whole: str) -> Iterator[LogFinding]:
    for row in rows:
        if row.name in LOADING and row.share is not None and row.share >= WARNING_SHARE:
            whose = "on the longest rank" if row.of_all_ranks else "on the rank that writes"
            summary = f"Loading data takes {format_share(row.share)} of {whole} {whose}"
            summary += f" ({row.name})" * (row.name != DATA)
            evidence = (f"{_span(row)}, mean of {row.counted} lines",)
            yield LogFinding("data_loading", _grade(row.share), summary, row.share, (), evidence, "input_starved")


def _generating(rows: Sequence[TimerRow], whole: str) -> Iterator[LogFinding]:
    """A finding where the samples of reinforcement learning take longer than anything that is done with them."""
    outer = [row for row in rows if row.depth == 0]
    for row in outer:
        if row.name in GENERATING and row.share is not None and row is max(outer, key=lambda row: row.longest_ms):
            summary = f"Generating samples takes {format_share(row.share)} of {whole}, more than any other part"
            evidence = (
                _span(row),
                "an engine for inference, more samples at once, shorter answers, or training beside it shorten that",
            )
            yield LogFinding("generation", _grade(row.share), summary, row.share, (), evidence)


def _optimizing(rows: Sequence[TimerRow], whole: str) -> Iterator[LogFinding]:
    """A finding on an optimizer that takes longer than the forward pass, which reads all parameters, too."""
    forward = sum(row.longest_ms for row in rows if row.name in _FORWARD)
    for row in rows:
        if (
            row.name in _OPTIMIZER
            and row.share is not None
            and row.share >= WARNING_SHARE
            and 0 < forward < row.longest_ms
        ):
            summary = f"The optimizer takes {format_share(row.share)} of {whole}, longer than the forward pass"
            evidence = (
                f"{_span(row)}, forward {format_us(forward * 1e3)}",
                "a fused optimizer, or its state sharded over ranks, shortens that; state on the host lengthens it",
            )
            yield LogFinding("optimizer", _grade(row.share), summary, row.share, (), evidence)


def _beside(rows: Sequence[TimerRow], whole: str) -> Iterator[LogFinding]:
    """Findings on what a loop times beside its passes, optimizer, batches and communication: its own metrics, say."""
    outer = [row for row in rows if row.depth == 0]
    known = [row for row in outer if _OF_STEPS.match(row.name) or row.name in (*SYNCHRONISING, *LOADING, *GENERATING)]
    if not all(any(row.name in names for row in outer) for names in (_FORWARD, _BACKWARD)):
        return
    for row in outer:
        if row not in known and row.share is not None and row.share >= CRITICAL_SHARE:
            summary = f"{row.name} takes {format_share(row.share)} of {whole}, beside the passes and the optimizer"
            yield LogFinding("beside_passes", "warning", summary, row.share, (), (_span(row),))


def _between_stages(rows: Sequence[TimerRow]) -> list[TimerRow]:
    """Timers of one rank that waits for other stages, longest first; none where each timer is of another rank."""
    if any(row.of_all_ranks for row in rows) or not any(MESSAGES.match(row.name) for row in rows):
        return []
    waits = [row for row in rows if MESSAGES.match(row.name) or row.name in _OF_STAGES]
    return sorted(waits, key=lambda row: -row.longest_ms)


def _pipeline(between: Sequence[TimerRow], whole: str, sizes: Mapping[str, int]) -> Iterator[LogFinding]:
    share = sum(row.share or 0.0 for row in between)
    if share < WARNING_SHARE:
        return
    evidence = [_span(row) for row in between if (row.share or 0.0) >= WARNING_SHARE]
    stages, batches = sizes.get("pipeline", 1), sizes.get("global", 0) // (sizes.get("micro", 1) * sizes.get("data", 1))
    if stages > 1 and batches and "micro" in sizes:
        idle = (stages - 1) / (stages - 1 + batches)  # Megatron-LM, SC 2021, section 2.2: without interleaving
        evidence.append(
            f"{stages} stages with {batches} micro-batches stand idle for {format_share(idle)} of the passes even "
            "where all are equal: more micro-batches, fewer stages or interleaving shorten that"
        )
    summary = f"Waiting for other stages of the pipeline takes {format_share(share)} of {whole}"
    yield LogFinding("pipeline_waiting", _grade(share), summary, share, (), tuple(evidence), "pipeline_bubble")


def _synchronising(rows: Sequence[TimerRow], between: Collection[str], whole: str) -> Iterator[LogFinding]:
    names = {row.name for row in rows}
    exposed = [row for row in rows if row.name in SYNCHRONISING and row.name not in between]
    outer = [row for row in exposed if parent(row.name, names) not in SYNCHRONISING]
    share = sum(row.share or 0.0 for row in outer)
    if share < WARNING_SHARE:
        return
    evidence = [_span(row) for row in sorted(outer, key=lambda row: -row.longest_ms)]
    waited = sum(row.longest_ms - row.shortest_ms for row in outer if row.shortest_ms is not None)
    if waited > 0:
        evidence.append(
            f"the rank that comes last has the shortest time: up to {format_us(waited * 1e3)} of it is waiting for it"
        )
    else:
        evidence.append("waiting for late ranks is in it, which these timers do not tell apart")
    summary = f"Communication that no computation hides takes {format_share(share)} of {whole}"
    yield LogFinding("exposed_communication", _grade(share), summary, share, (), tuple(evidence))


def _apart(rows: Sequence[TimerRow], whole: str, stages: int | None) -> Iterator[LogFinding]:
    by_name = {row.name: row for row in rows}
    for name in OWN_WORK:
        row = by_name.get(name)
        if row is None or row.shortest_ms is None or row.share is None or not row.longest_ms:
            continue
        apart_ms = row.longest_ms - row.shortest_ms
        share = row.share * apart_ms / row.longest_ms
        inner = by_name.get("batch-generator") if name == "forward-compute" else None
        if inner is not None and inner.shortest_ms is not None:
            share -= row.share * max(0.0, inner.longest_ms - inner.shortest_ms) / row.longest_ms
        if share < WARNING_SHARE:
            continue
        # Stages of a pipeline, and ranks that receive a batch in place of loading it, differ as they should.
        judged = stages == 1 and name == "forward-compute"
        evidence = [f"{_span(row)}, median of {row.counted}"]
        if not judged:
            evidence.append(
                "stages of a pipeline, and ranks that are handed their batch by others, differ as they should"
            )
        summary = f"The ranks are up to {format_share(share)} of {whole} apart in {name}; the log names none"
        yield LogFinding("ranks_apart", _grade(share) if judged else "info", summary, share, (), tuple(evidence))


def _typical(name: str, of: Sequence[TimerReading]) -> tuple[float, float | None]:
    """Longest and shortest time of a timer: medians, means of loading, which waits for one batch in several."""
    middle = fmean if name in LOADING else median
    shortest = [reading.shortest_ms for reading in of if reading.shortest_ms is not None]
    return middle([reading.longest_ms for reading in of]), middle(shortest) if shortest else None


def _in_order(typical: dict[str, tuple[float, float | None]]) -> list[str]:
    def below(of: str | None) -> Iterator[str]:
        inside = [name for name in typical if parent(name, typical) == of]
        for name in sorted(inside, key=lambda name: -typical[name][0]):
            yield name
            yield from below(name)

    return list(below(None))


def _span(row: TimerRow) -> str:
    longest = format_us(row.longest_ms * 1e3)
    return f"{row.name} {longest if row.shortest_ms is None else f'{format_us(row.shortest_ms * 1e3)} to {longest}'}"


def _grade(share: float) -> str:
    return severity(share, 1.0)


# Of starts, checkpoints and evaluation: no part of an iteration, whose clock stands still meanwhile.
ONCE = re.compile(r"setup|^model-and-optimizer|checkpoint|^eval|iterators|^interval-time|^train/valid")
_BATCH = "run_training_batch"  # Lightning's
MESSAGES = re.compile(r"(?:forward|backward)-(?:send|recv)|pipe_(?:send|recv)")
_PARTS = re.compile(
    r"^(?P<of>bwd|backward)[_-](?:inner|allreduce|backward|master-grad|clip-grad)(?P<micro>_microstep)?$"
)


def parent(name: str, names: Collection[str]) -> str | None:
    """The timer in the log that contains this one."""
    return next((of for of in _holders(name, "all-grads-sync" in names) if of in names and of != name), None)


def depth(name: str, names: Collection[str]) -> int:
    """Number of timers around it."""
    of = parent(name, names)
    return 0 if of is None else 1 + depth(of, names)


def _holders(name: str, schedule_finishes: bool) -> tuple[str, ...]:
    """Timers that contain this one, innermost first."""
    if name == "batch-generator":
        return ("forward-compute", "forward-backward", "forward")
    if name in ("forward-compute", "backward-compute") or MESSAGES.match(name):
        return ("forward-backward",)
    if name == "all-grads-sync" or name.endswith("-grads-all-reduce"):
        return ("forward-backward",) if schedule_finishes else ()
    if name == "params-all-gather":
        return ("optimizer",) if schedule_finishes else ()
    if re.match(r"backward-(?:params|layernorm|embedding)-all-reduce", name):
        return ("backward-reduce-model-grads",)
    if name.startswith("optimizer-"):
        return ("optimizer",)
    part = _PARTS.match(name)
    if part is not None:
        return (f"{part['of']}{part['micro'] or ''}",)
    if name.startswith("optimizer_"):
        return (*_OPTIMIZER, _BATCH)
    if re.match(r"(?:fwd|forward|bwd|backward)(?:_microstep)?$|(?:model|training)_", name):
        return ("forward-backward", _BATCH)
    if name in ("generate_sequences", "reshard") or name.startswith("generation_timing"):
        return ("gen",)  # verl's, of its workers
    if "/" in name:
        return (f"{name.partition('/')[0]}/total",)  # NeMo-RL's
    return ("optimizer",) if name in ("step", "step_microstep") else ()
