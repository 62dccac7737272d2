"""The engine: a job that still writes, headers that state a job of any size, and files that are not of one job."""

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from labelled_runs import Runs

from ddprof.analyzers import engine
from ddprof.analyzers.engine import Options, analyze, read_facts, recording
from ddprof.analyzers.facts.names import POINT_TO_POINT
from ddprof.model import Identity, RankTrace
from ddprof.readers import Source, discover, read
from ddprof.readers.admission.jobs import split_jobs
from ddprof.units import MAX_RANGES, format_ranks

EVENT = '{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 9}'


def _write(path: Path, rank: int = 0, world_size: int = 1) -> Path:
    header = f'"distributedInfo": {{"rank": {rank}, "world_size": {world_size}}}'
    path.write_text(f'{{"schemaVersion": 1, {header}, "traceEvents": [{EVENT}]}}')
    return path


@pytest.mark.parametrize("change", ["changed", "vanished"])
def test_a_changing_file_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    (source,) = discover([_write(tmp_path / "rank0.json")]).sources

    def read_and_change(source: Source) -> RankTrace:
        trace = read(source)
        os.unlink(source.path) if change == "vanished" else os.utime(source.path, ns=(1, source.mtime_ns + 1))
        return trace

    monkeypatch.setattr(engine, "read", read_and_change)
    facts = read_facts(source).facts
    assert facts and f"{source.path}: {change} while it was read" in [note.issue for note in facts.health]
    if change == "changed":
        analyze([tmp_path], Options(cache=str(tmp_path / "cache")))
        assert list((tmp_path / "cache").iterdir()) == []


def test_what_is_missing_of_the_largest_job_is_counted_and_listed_in_short(tmp_path: Path) -> None:
    for rank in range(2):
        _write(tmp_path / f"rank{rank}.json", rank, 2**20)
    (report,) = analyze([tmp_path], Options(cache=False))
    assert len(report.run.missing_ranks) == 2**20 - 2  # one rank after another: pairs of them would take days
    words = format_ranks(tuple(range(0, 1000, 2)))
    assert words.startswith("ranks 0, 2, 4") and words.endswith(", ... (500 in all)")
    assert words.count(",") == MAX_RANGES


def test_messages_connect_the_stages_of_a_pipeline_that_has_no_collectives(labelled: Runs) -> None:
    ranks = labelled("clean.pp").job.ranks
    assert all(np.isin(facts.comms["op"], POINT_TO_POINT).all() for facts in ranks)
    silent = [recording(replace(facts, identity=Identity(None, "order"))) for facts in ranks]
    assert all(each.communications and each.group_ranks for each in silent) and split_jobs(silent) == [[0, 1]]


@pytest.mark.parametrize("name", ["ab_pair", "unrelated_two_runs"])
def test_unrelated_recordings_are_not_ranks_of_one_job(shared_run: Callable[[str], Path], name: str) -> None:
    reports = analyze([shared_run(f"wild/recordings/{name}")], Options(workers=1, cache=False))
    assert len(reports) == 2
    for report in reports:
        assert (report.run.world_size, report.run.missing_ranks, len(report.clock.hosts)) == (1, (), 1)
        assert any("not of one job" in item.issue for item in report.health)
        assert not any(f.id.startswith(("straggler", "input.straggler", "comm")) for f in report.findings)
        assert all(sum(row.values()) <= 2.001 * row["wall_us"] for row in report.ledger.per_rank.values())


def test_two_jobs_of_two_sizes_in_one_folder_are_two_runs(labelled: Runs, tmp_path: Path) -> None:
    for name in ("clean.ddp", "clean.pp"):
        for file in labelled(name).traces.iterdir():
            shutil.copy(file, tmp_path / f"{name}_{file.name}")
    reports = analyze([tmp_path], Options(workers=1, cache=False))
    assert sorted(report.run.world_size for report in reports) == [2, 4]
    assert all("different world sizes (2, 4)" in str(report.health) for report in reports)
