"""The engine: a job that still writes, headers of any size, files that are not of one job; and why a job failed."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from labelled_runs import Runs
from reading import rank_file

from ddprof.analyzers import engine
from ddprof.analyzers.engine import Options, analyze, read_facts, recording
from ddprof.analyzers.facts.names import POINT_TO_POINT
from ddprof.analyzers.failure import failure_of
from ddprof.model import Identity, RankTrace
from ddprof.readers import Source, discover, read
from ddprof.readers.admission.jobs import split_jobs
from ddprof.units import MAX_RANGES, format_ranks


@pytest.mark.parametrize("change", ["changed", "vanished"])
def test_a_changing_file_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    (source,) = discover([rank_file(tmp_path / "rank0.json", 0, 1)]).sources

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
        rank_file(tmp_path / f"rank{rank}.json", rank, 2**20)
    (report,) = analyze([tmp_path], Options(cache=False))
    assert len(report.run.missing_ranks) == 2**20 - 2  # one rank after another: pairs of them would take days
    words = format_ranks(tuple(range(0, 1000, 2)))
    assert words.startswith("ranks 0, 2, 4") and words.endswith(", ... (500 in all)") and words.count(",") == MAX_RANGES


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


@pytest.fixture(params=["file", "store"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, memory_url: str) -> str:
    return str(tmp_path) if request.param == "file" else memory_url


def _manifest(folder: str, **content: Any) -> str:
    with fsspec.open(f"{folder}/manifest.json", "w") as file:
        json.dump({"schema": "ddprof.run/1", **content}, file)
    return f"{folder}/manifest.json"


def test_a_job_that_failed_without_a_trace_of_why_says_so(folder: str) -> None:
    failure = failure_of([_manifest(folder, exit_code=7)])
    assert failure is not None and "exit code 7" in failure.sentence


@pytest.mark.parametrize("manifest", [{}, {"exit_code": 0}, {"exit_code": 130}, {"exit_code": "seven"}])
def test_a_job_that_ended_well_or_left_no_manifest_did_not_fail(manifest: dict[str, Any], folder: str) -> None:
    assert failure_of([_manifest(folder, **manifest), f"{folder}/gone/manifest.json"]) is None


def test_what_explains_failures_and_what_redacts_is_imported_only_where_it_is_asked_for(tmp_path: Path) -> None:
    probe = (
        "import sys, ddprof.cli.analyze, ddprof.analyzers.engine; from ddprof.analyzers.failure import failure_of;"
        "assert failure_of(sys.argv[1:]) is None; print(*sys.modules)"
    )
    arguments = [sys.executable, "-c", probe, _manifest(str(tmp_path), exit_code=0)]
    loaded = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout.split()
    rare = ("ddprof.slices.hangs.", "ddprof.report.redaction", "ddprof.report.gate")
    assert [name for name in loaded if name.startswith(rare)] == [] and "sqlite3" not in loaded
