"""Jobs as the checks of the training see them: what the capture recorded on each rank, and the sums between ranks."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from captured import sidecar_of

from ddprof.analyzers.facts.names import OP_CODE
from ddprof.analyzers.training.catalogue import training_checks
from ddprof.findings import Remark

STEPS = 5


def job(*sidecars: dict[str, Any], sums: Sequence[int] = (), ops: Sequence[str] = ()) -> Any:
    """One rank per content of a sidecar; `sums`: bytes that all ranks sum in every step; `ops`: what they call too."""
    table = [(OP_CODE["all_reduce"], size) for size in sums] * STEPS + [(OP_CODE[op], 64) for op in ops]
    op, size_bytes = (np.array([row[part] for row in table], np.int64) for part in (0, 1))
    instances = {"op": op.astype(np.uint8), "group": np.zeros(len(table), np.int64), "size_bytes": size_bytes}
    ranks = tuple(SimpleNamespace(sidecar=sidecar_of(s), steps=[None] * STEPS) for s in sidecars)
    groups, count = {"size": np.array([len(ranks)]), "role": ["dp"]}, len(ranks)
    ids = tuple(range(count))
    return SimpleNamespace(rank_ids=ids, ranks=ranks, world_size=count, groups=groups, instances=instances)


def said(name: str, job: Any) -> list[Remark]:
    return list(training_checks()[f"training.{name}"].detect(job))


def held(checksums: Sequence[str], kind: str = "ddp", step: int = 9, ranks: Sequence[int] = (0, 1), **more: Any) -> Any:
    """A sidecar of a rank that held tensors of 64, 128, ... bytes with these checksums after a step."""
    names = [f"layer{at}.weight" for at in range(len(checksums))]
    of_ranks = {"class": "Net", "kind": kind, "ranks": list(ranks) if kind == "ddp" else []}
    sizes_bytes = [64 << at for at in range(len(checksums))]
    tensors = {"names": names, "sizes_bytes": sizes_bytes, "values": [0.5] * len(checksums), "buffers": []}
    tensors["checksums"] = "".join(f"{sum_:>08}" for sum_ in checksums)
    line = {"file": "train.py", "line": 7, "function": "main"}
    return {"replicas": {"step": step, "models": [{**of_ranks, **tensors, "line": line, **more}]}}
