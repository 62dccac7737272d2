"""Facts survive the cache, and a damaged cache is not trusted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from captured import sidecar_of
from labelled_runs import Runs

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.store import load, save


def test_facts_survive_the_cache(labelled: Runs, tmp_path_factory: pytest.TempPathFactory) -> None:
    content = {"steps": [{"start_ns": 1, "end_ns": 2}], "dataloader": {"sampler": {"class": "S"}}, "nccl": None}
    facts = replace(labelled("clean.ddp").job.ranks[0], sidecar=sidecar_of(content))
    folder = tmp_path_factory.mktemp("facts") / "key"
    save(facts, folder)
    again = load(folder)
    assert isinstance(again, RankFacts)
    assert (again.identity, again.strings, again.counts) == (facts.identity, facts.strings, dict(facts.counts))
    assert again.sidecar == facts.sidecar
    for name in ("steps", "device_ops", "comms", "gaps", "kernel_groups"):
        mine, theirs = getattr(facts, name), getattr(again, name)
        assert all(np.array_equal(mine[c.name], theirs[c.name], equal_nan=mine[c.name].dtype.kind == "f")
                   for c in mine.schema.columns), name  # fmt: skip


def test_a_damaged_cache_is_not_trusted(labelled: Runs, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("facts") / "key"
    save(labelled("clean.ddp").job.ranks[0], folder)
    (folder / "comms.parquet").write_bytes(b"not parquet")
    assert load(folder) is None
    assert load(folder / "none") is None
