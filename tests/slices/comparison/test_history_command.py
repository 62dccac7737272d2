"""`ddprof history`: runs of a folder, and one line with exit code 4 for what is none."""

import json
import shutil
from pathlib import Path

import pytest


def test_every_run_has_a_line_and_its_numbers_and_redaction_hides_its_name(ddprof, sample, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    for name in ("healthy", "slow_gpu"):
        shutil.copytree(f"{sample(name)}/traces", folder / name)
    code, out, _ = ddprof("history", str(folder))
    assert code == 0 and "healthy" in out and "slow_gpu" in out and "2 runs" in out
    code, out, _ = ddprof("history", str(folder), "--redact")
    assert code == 0 and "slow_gpu" not in out
    code, out, _ = ddprof("history", str(folder), "--format", "json")
    runs = {run["name"]: run for run in json.loads(out)["runs"]}
    assert code == 0 and set(runs) == {"healthy", "slow_gpu"}
    for name, run in runs.items():
        told = json.loads(ddprof("analyze", str(folder / name), "--format", "json")[1])
        assert run["step_us"] == pytest.approx(told["steps"]["wall_us"], abs=0.01)
        assert sum(run["shares"].values()) == pytest.approx(1, abs=1e-3)
        assert run["mfu"] == told["efficiency"]["mfu"]


@pytest.mark.parametrize("what", ["absent", "empty", "file"])
def test_what_holds_no_run_is_one_line(ddprof, tmp_path: Path, what: str) -> None:
    path = tmp_path / what
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("no trace")
    code, out, err = ddprof("history", str(path))
    assert (code, out, len(err.splitlines())) == (4, "", 1) and str(path) in err
