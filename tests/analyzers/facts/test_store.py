"""Facts survive the cache, and a damaged cache is not trusted."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
from captured import sidecar_of
from labelled_runs import Runs

from ddprof.analyzers.facts import store
from ddprof.analyzers.facts.model import TABLES, RankFacts
from ddprof.analyzers.facts.store import _checksum, cache_folder, load, save
from ddprof.tables import Table


def test_facts_survive_the_cache(labelled: Runs, tmp_path_factory: pytest.TempPathFactory) -> None:
    content = {"steps": [{"start_ns": 1, "end_ns": 2}], "dataloader": {"sampler": {"class": "S"}}, "nccl": None}
    facts = replace(labelled("clean.ddp").job.ranks[0], sidecar=sidecar_of(content))
    folder = tmp_path_factory.mktemp("facts") / "key"
    save(facts, folder, "")
    again = load(folder, "")
    assert isinstance(again, RankFacts)
    assert (again.identity, again.strings, again.counts) == (facts.identity, facts.strings, dict(facts.counts))
    assert again.sidecar == facts.sidecar
    for name in ("steps", "device_ops", "comms", "gaps", "kernel_groups"):
        mine, theirs = getattr(facts, name), getattr(again, name)
        assert all(np.array_equal(mine[c.name], theirs[c.name], equal_nan=mine[c.name].dtype.kind == "f")
                   for c in mine.schema.columns), name  # fmt: skip


def test_every_table_of_the_facts_is_kept(labelled: Runs) -> None:
    facts = labelled("clean.ddp").job.ranks[0]
    assert {f.name for f in fields(facts) if isinstance(getattr(facts, f.name), Table)} == set(TABLES)


@pytest.fixture
def kept(labelled: Runs, tmp_path: Path) -> Path:
    """A folder with the facts of a rank."""
    save(labelled("clean.ddp").job.ranks[0], tmp_path / ".ddprof" / "key", "")
    return tmp_path / ".ddprof" / "key"


def test_no_flipped_bit_of_any_file_is_trusted(kept: Path) -> None:
    random = Random(7)
    for file in sorted(kept.iterdir()) * 8:
        sound = file.read_bytes()
        flipped = bytearray(sound)
        flipped[random.randrange(len(flipped))] ^= 1 << random.randrange(8)
        file.write_bytes(flipped)
        assert load(kept, "") is None
        file.write_bytes(sound)
    assert load(kept, "") is not None


def _of_another_key(kept: Path) -> None:
    kept.rename(kept.with_name("other"))
    (kept.with_name("other")).rename(kept.with_name("yet another"))
    kept.symlink_to("yet another")
    (kept / "checksum").write_text(_checksum({f.name: f.read_bytes() for f in kept.iterdir()}, Path("other")))


def _a_pipe(kept: Path) -> None:
    (kept / "comms.parquet").unlink()
    os.mkfifo(kept / "comms.parquet")


def _gone(kept: Path) -> None:
    (kept / "facts.json").unlink()


def _empty(kept: Path) -> None:
    (kept / "steps.parquet").write_bytes(b"")


@pytest.mark.parametrize("damage", [_of_another_key, _a_pipe, _gone, _empty])
def test_a_damaged_cache_is_not_trusted_and_made_anew(
    kept: Path, labelled: Runs, damage: Callable[[Path], None]
) -> None:
    damage(kept)
    assert load(kept, "") is None
    if not kept.is_symlink():
        save(labelled("clean.ddp").job.ranks[0], kept, "")
        assert load(kept, "") is not None


def test_facts_that_another_user_wrote_are_not_trusted(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_believed", lambda path: {os.getuid() + 1})
    assert load(kept, "") is None
    assert cache_folder(str(kept.parent.parent / "rank0.json"), "key") != kept


def test_a_link_is_no_place_for_a_cache(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".ddprof").symlink_to("elsewhere")
    assert cache_folder(str(tmp_path / "rank0.json"), "key") != tmp_path / ".ddprof" / "key"
