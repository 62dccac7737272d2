"""Ranks of one job run different versions of torch, CUDA or NCCL, or different settings of NCCL.

What it detects: versions of torch, Python, CUDA, HIP and NCCL, and NCCL's variables, that are not the same on all
ranks. Variables that name a host's own interfaces, devices and files are left out.
Why it matters: results are rounded differently, and one rank may be slower for its libraries alone. Different settings
of NCCL make ranks choose different algorithms: a hang at worst.
How to fix: one image and one environment for all hosts.
Limits: needs ddprof's own capture.
Sources: NCCL environment variables; PyTorch reproducibility notes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from ddprof.analyzers.job.model import JobFacts
from ddprof.finding_ids import TRAINING_ENVIRONMENT_DIFFERS
from ddprof.findings import Check, Evidence, Fix, Remark
from ddprof.units import format_ranks

_VERSIONS = ("torch", "cuda", "hip", "nccl", "python")
_SETTINGS = ("NCCL_", "RCCL_", "TORCH_NCCL_")
# In a variable's name: what belongs to one host or process, and what only decides what is printed or kept.
_OWN = ("IFNAME", "HCA", "FILE", "DEBUG", "HOSTID", "GID", "TOPO", "DUMP", "PORT", "ADDR", "DEV", "DIR", "PATH", "RANK")


def detect(job: JobFacts) -> Iterator[Remark]:
    """One remark over all that differs."""
    captured = {r: f.sidecar for r, f in zip(job.rank_ids, job.ranks, strict=True) if f.sidecar.is_captured}
    versions = {rank: {k: sidecar.versions.get(k) or "" for k in _VERSIONS} for rank, sidecar in captured.items()}
    with_torch = {rank: values for rank, values in versions.items() if values["torch"]}
    settings = {
        rank: {k: v for k, v in sidecar.communication_environment.items() if _is_shared(k)}
        for rank, sidecar in captured.items()
    }
    differing = [*_differing(with_torch), *_differing(settings)]
    if not differing:
        return
    odd = {rank for _, ranks, _ in differing for rank in ranks}
    names = ", ".join(name for name, _, _ in differing)
    yield Remark(
        id=CHECK.id,
        summary=f"the ranks of the job differ in {names}",
        ranks=tuple(sorted(odd)) if len(odd) < len(captured) else (),
        evidence=tuple(Evidence(text) for _, _, text in differing),
        fixes=(
            Fix(
                setting="environment of the ranks",
                suggested="one image and the same variables on every host",
                why="ranks that run other libraries round differently and may choose other algorithms",
                source="NCCL environment variables",
            ),
        ),
    )


def _is_shared(name: str) -> bool:
    return name.startswith(_SETTINGS) and not any(part in name for part in _OWN)


def _differing(values: Mapping[int, Mapping[str, str]]) -> Iterator[tuple[str, tuple[int, ...], str]]:
    """(name, ranks that differ from the majority, words) of everything that differs between ranks."""
    for name in sorted({name for of in values.values() for name in of}):
        held = {rank: of.get(name, "") for rank, of in values.items()}
        counts = Counter(held.values()).most_common()
        if len(counts) < 2:
            continue
        groups = [tuple(rank for rank, value in held.items() if value == of) for of, _ in counts]
        words = [f"{value or 'not set'} on {format_ranks(g)}" for (value, _), g in zip(counts, groups, strict=True)]
        yield name, tuple(rank for group in groups[1:] for rank in group), f"{name}: {', '.join(words[:3])}"


CHECK = Check(TRAINING_ENVIRONMENT_DIFFERS, "Ranks run different software or settings", detect)
