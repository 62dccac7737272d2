"""JobFacts to Report: measure, replay, diagnose and phrase."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ddprof.analyzers.catalogue import remarks
from ddprof.analyzers.diagnose import diagnose
from ddprof.analyzers.job.efficiency import efficiency
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.model import UNKNOWN_ROLE, JobFacts
from ddprof.analyzers.job.traffic.routes import route_of
from ddprof.analyzers.job.whole_run.cpu_waits import waited_share
from ddprof.analyzers.job.whole_run.sampling import shares_replica
from ddprof.analyzers.job.whole_run.unprofiled_steps import timed_parts_us
from ddprof.analyzers.replay.price import Pricer
from ddprof.analyzers.verdict import verdict
from ddprof.causes import CAUSES
from ddprof.findings import Change, Finding
from ddprof.model import HealthNote
from ddprof.report.model import (
    AppliedSetting,
    ClockInfo,
    HealthItem,
    HostClockInfo,
    Ledger,
    LeftOutStep,
    Replay,
    Report,
    RunInfo,
    Steps,
    Training,
)
from ddprof.settings.catalogue import CATALOGUE, LOADER
from ddprof.settings.wanted import shown
from ddprof.sidecar.applied import MadeLine, SettingOutcome, merged

# Script lines to which fixes apply.

_MAX_LINES = 8  # more of them are rather one loop over layers, told as all


def located(finding: Finding, job: JobFacts) -> Finding:
    """The finding with script lines in its fixes, where capture recorded which lines create the objects."""
    fixes = (replace(fix, at=lines_for((name for name, _ in fix.applies), job)) for fix in finding.fixes)
    return replace(finding, fixes=tuple(fixes))


def lines_for(names: Iterable[str], job: JobFacts) -> tuple[str, ...]:
    """The lines that create the objects of these settings; () where unknown or too many."""
    made = list(dict.fromkeys(line for facts in job.ranks for line in facts.sidecar.made))
    return _lines(names, made)


def _lines(names: Iterable[str], made: Iterable[MadeLine]) -> tuple[str, ...]:
    accepted = [set(CATALOGUE[name].targets) for name in names if name in CATALOGUE]
    targets = set.intersection(*accepted) if accepted else set()
    lines = [line for line in made if line.object in targets]
    if LOADER in targets:
        lines = [line for line in lines if line.trains]
    places = tuple(dict.fromkeys(f"{line.file}:{line.line}" for line in lines))
    return places if len(places) <= _MAX_LINES else ()


_OF_DEVICES = ("nccl", "rccl", "hccl", "xccl")  # backends that no CPU rank can use


def summarise(
    job: JobFacts,
    name: str,
    notes: Sequence[HealthNote],
    measures: Measures,
    prices: Pricer,
) -> Report:
    """The report of one job from its `measures` and `prices`. `notes`: input defects found before assembly.

    `measures` and `prices`: of this job.
    """
    diagnosis = diagnose(measures, prices)
    steps = _steps(job, measures, prices)
    return Report(
        run=_run(job, name),
        steps=steps,
        ledger=_ledger(job, measures),
        verdict=verdict(measures, diagnosis, steps),
        findings=tuple(located(finding, job) for finding in diagnosis.findings),
        what_if=diagnosis.what_if,
        replay=Replay(prices.error),
        clock=_clock(job),
        health=tuple(_health(job, notes)),
        efficiency=efficiency(measures, _transfer_free(prices)),
        abstentions=tuple(a for a in diagnosis.abstentions if all(a.id != f.id for f in diagnosis.findings)),
        checked=diagnosis.checked,
        training=training_of(job),
        applied=over_ranks((r, f.sidecar.applied) for r, f in zip(job.rank_ids, job.ranks, strict=True)),
        tables={"instances": job.instances, "members": job.members, "ledger": job.ledger, "blame": job.blame},
    )


def _transfer_free(prices: Pricer) -> float | None:
    if not prices.graph.ranks:
        return None
    return prices.step_us((Change("scale_transfer", (), (0.0,)),))


def _run(job: JobFacts, name: str) -> RunInfo:
    first = job.ranks[0]
    backends = [f.identity.backend for f in job.ranks if f.identity.backend]
    return RunInfo(
        world_size=job.world_size,
        ranks=job.rank_ids,
        missing_ranks=job.missing_ranks,
        hosts={r: f.identity.host for r, f in zip(job.rank_ids, job.ranks, strict=True) if f.identity.host},
        backend=backends[0] if backends else None,
        device=_device(first.device.kind, backends),
        device_name=first.device.name,
        framework=_framework(job),
        source=first.format,
        name=name,
        paths=tuple(f.path for f in job.ranks),
        started_unix_s=job.origin_ns / 1e9 if job.ranks[0].has_base_time and job.origin_ns > 0 else None,
    )


def _device(kind: str, backends: Sequence[str]) -> str:
    """The kind of accelerator; "unknown" where none left a record but the collectives are an accelerator's."""
    return "unknown" if kind == "cpu" and backends and backends[0] in _OF_DEVICES else kind


def _framework(job: JobFacts) -> tuple[str, ...]:
    """Parallelism of the run: roles of the groups in use; the wrappers' own ranges tell DDP from FSDP."""
    text = {s for f in job.ranks[:1] for s in f.strings if "Parallel" in s or "FSDP" in s or "DeepSpeed" in s}
    parallelism = []
    if any("FullyShardedDataParallel" in s or s.startswith("FSDP::") for s in text):
        parallelism.append("fsdp")
    if any("DistributedDataParallel" in s for s in text):
        parallelism.append("ddp")
    if any("DeepSpeed" in s for s in text):
        parallelism.append("deepspeed")
    roles = [str(r) for r, size in zip(job.groups["role"], job.groups["size"], strict=True) if r and size > 1]
    # Reduce-scatters and all-gathers alone may be any sharding's: an optimizer of one's own, ZeRO, FSDP.
    names = {"fsdp_shard": "fsdp" if "fsdp" in parallelism else "sharded", "replicate": "hsdp"}
    for role in dict.fromkeys(names.get(r, r) for r in roles):
        if (
            role not in parallelism
            and not role.startswith(UNKNOWN_ROLE)
            and not (role == "dp" and "ddp" in parallelism)
        ):
            parallelism.append(role)
    route = route_of(job)
    return (*parallelism, *([route.kind] if route is not None else []))


def _steps(job: JobFacts, measures: Measures, prices: Pricer) -> Steps:
    timed_us, timed = timed_parts_us(job.ranks)
    return Steps(
        count=len(job.per_step_ns),
        source=job.ranks[0].step_source,
        wall_us=measures.step_us,
        per_step_us=tuple(ns / 1e3 for ns in job.per_step_ns),
        unprofiled_us=None if prices.unprofiled is None else prices.unprofiled.step_us,
        left_out=tuple(LeftOutStep(step.number, step.wall_ns / 1e3, step.why) for step in job.left_out),
        timed_us=timed_us,
        timed=timed,
        waited_share=waited_share(job.ranks),
    )


def _ledger(job: JobFacts, measures: Measures) -> Ledger:
    rows = {}
    for p, rank in enumerate(job.rank_ids):
        row = {cause: float(measures.ledger_us[p, c]) for c, cause in enumerate(CAUSES)}
        rows[rank] = {"wall_us": float(measures.ledger_us[p].sum()), **row}
    mean = measures.ledger_us.mean(axis=0)
    return Ledger(rows, {"wall_us": float(mean.sum()), **{cause: float(mean[c]) for c, cause in enumerate(CAUSES)}})


def _clock(job: JobFacts) -> ClockInfo:
    hosts = {
        name: HostClockInfo(c.offset_ns / 1e3, c.drift_ppm, None if c.error_ns is None else c.error_ns / 1e3)
        for name, c in job.clock.domains.items()
    }
    return ClockInfo(hosts, job.clock.method)


def _health(job: JobFacts, notes: Sequence[HealthNote]) -> list[HealthItem]:
    items = [HealthItem(n.issue, n.effect, n.severity, n.rank) for n in (*notes, *job.health)]
    for rank, facts in zip(job.rank_ids, job.ranks, strict=True):
        items += [
            HealthItem(n.issue, n.effect, n.severity, n.rank if n.rank is not None else rank) for n in facts.health
        ]
    seen: dict[tuple[str, str, int | None], HealthItem] = {(i.issue, i.effect, i.rank): i for i in items}
    order = {"error": 0, "warning": 1, "info": 2}
    return sorted(seen.values(), key=lambda i: (order.get(i.severity, 1), -1 if i.rank is None else i.rank))


def training_of(job: JobFacts) -> Training:
    """Training facts from capture. Samples per step are unknown where ranks share a model replica."""
    per_rank = None if shares_replica(job) else _samples_per_rank(job)
    optimizer = next((o for f in job.ranks if (o := f.sidecar.optimizer).name), None)
    rates = [] if optimizer is None else [rate for rate in optimizer.learning_rates if rate is not None]
    return Training(
        samples_per_rank=per_rank,
        samples_per_step=None if per_rank is None else per_rank * job.world_size,
        optimizer=(optimizer.name or "") if optimizer else "",
        learning_rate=max(rates, default=None),
        remarks=remarks(job),
    )


def _samples_per_rank(job: JobFacts) -> float | None:
    """Samples of one optimizer step, all micro-batches, of the typical step, mean over ranks; None where unknown."""
    medians = []
    for facts in job.ranks:
        samples = [fed.samples for fed in facts.sidecar.batches if fed.samples]
        if not samples:
            return None
        medians.append(statistics.median(samples))
    return statistics.fmean(medians) if medians else None


def over_ranks(outcomes: Iterable[tuple[int, tuple[SettingOutcome, ...]]]) -> tuple[AppliedSetting, ...]:
    """Applied settings with equal outcomes on several ranks merged, in the order of recording."""
    return tuple(
        AppliedSetting(
            setting=row.setting,
            value=shown(row.value),
            at=row.at,
            object=row.object,
            before=None if row.before is None else shown(row.before),
            applied=row.applied,
            why=row.why,
            ranks=ranks,
        )
        for row, ranks in merged(outcomes)
    )
