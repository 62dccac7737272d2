"""Files of one folder that are not of one job: each is analyzed alone, and the reports say so."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from labelled_runs import Runs

from ddprof.analyzers.engine import Options, analyze


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
