"""Notes of one folder never stand under the run of another."""

import shutil
from pathlib import Path

import pytest

from ddprof.analyzers.engine import Options, load_runs


@pytest.fixture
def runs(repo_root: Path, tmp_path: Path) -> Path:
    """Two runs, with a damaged trace beside one of them."""
    for name in ("first", "second"):
        shutil.copytree(repo_root / "sample_traces" / "late_loader" / "traces", tmp_path / name)
    (tmp_path / "second" / "broken.json").write_bytes(b"\xff\xfe\x00 no trace at all")
    return tmp_path


@pytest.mark.parametrize("given", [("first", "second"), ("second", "first"), (".",)])
def test_a_note_is_told_of_its_own_run(runs: Path, given: tuple[str, ...]) -> None:
    loaded = load_runs([str(runs / name) for name in given], Options(workers=1, cache=False))
    told = {Path(run.job.ranks[0].path).parent.name: sum("broken.json" in n.issue for n in run.notes) for run in loaded}
    assert told == {"first": 0, "second": 1}


def test_a_note_above_all_runs_is_told_of_all(runs: Path) -> None:
    (runs / "broken_above.json").write_bytes(b"\xff\xfe\x00 no trace at all")
    loaded = load_runs([str(runs)], Options(workers=1, cache=False))
    assert [sum("broken_above.json" in n.issue for n in run.notes) for run in loaded] == [1, 1]
