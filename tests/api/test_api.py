"""`import ddprof; ddprof.analyze(...)`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ddprof
from ddprof.api import analyze_all, load
from ddprof.causes import CAUSES
from ddprof.errors import NoUsableInput
from ddprof.report.json.contract import to_contract
from ddprof.report.model import Report


@pytest.fixture
def saved(tmp_path: Path, straggler_report: Report) -> Path:
    file = tmp_path / "run.json"
    file.write_text(json.dumps(to_contract(straggler_report)))
    return file


def test_findings_verdict_and_ledger(saved: Path) -> None:
    run = ddprof.analyze(saved)
    assert [f.id for f in run.findings] == ["input.straggler", "comm.bandwidth_bound"]
    assert run.verdict.bound == "straggler"
    assert run.step_us == 100_000
    assert list(run.ledger.columns) == ["wall_us", *CAUSES]
    assert run.ledger.index.name == "rank"
    assert run.ledger.loc[2, "dataloader"] == 38_000
    assert (run.ledger[list(CAUSES)].sum(axis=1) - run.ledger["wall_us"]).abs().max() < 1


def test_json_html_and_notebook(saved: Path, tmp_path: Path) -> None:
    run = ddprof.analyze([saved])
    assert json.loads(run.to_json()) == json.loads(saved.read_text())
    assert run.save_html(tmp_path / "x.html").read_text().startswith("<!doctype html>")
    assert "STRAGGLER-BOUND" in run._repr_html_()
    assert "STRAGGLER-BOUND" in str(run) and len(str(run)) < 1_000
    assert run.to_text().startswith(str(run)[:40]) and len(run.to_text()) > len(str(run))
    assert max(len(repr(run)), len(str(run.report))) < 500


def test_several_runs_need_analyze_all(saved: Path) -> None:
    with pytest.raises(NoUsableInput, match="2 runs found"):
        ddprof.analyze([saved, saved])
    assert len(analyze_all([saved, saved])) == 2
    assert load(saved).verdict.bound == "straggler"


def test_nothing_to_analyze(tmp_path: Path) -> None:
    with pytest.raises(NoUsableInput):
        ddprof.analyze(tmp_path)
    with pytest.raises(NoUsableInput):
        load(tmp_path / "absent.json")


@pytest.mark.parametrize("sample", ["03_slow_gpu_ddp4", "05_loader_starved_ddp4"])
def test_real_traces_through_every_rendering(shared_dir: Path, tmp_path: Path, sample: str) -> None:
    folder = shared_dir / "oracle_samples" / sample / "traces"
    if not folder.is_dir():
        pytest.skip(f"no sample {sample} in {shared_dir}")
    run = ddprof.analyze(folder, cache=False)
    document = json.loads(run.to_json())
    for row in (document["ledger"]["job"], *document["ledger"]["per_rank"].values()):
        assert sum(row[cause] for cause in CAUSES) == pytest.approx(row["wall_us"], rel=1e-3)
    page = run.save_html(tmp_path / "x.html").read_text()
    assert document["findings"][0]["id"] in page
    assert 'id="timeline"' in page
    assert "A saved report does not hold" not in page
    assert len(page.encode()) < 3_000_000
    assert document["findings"][0]["id"] in run.to_text()


def test_kernels_have_real_names_and_a_saved_report_has_none(repo_root: Path, saved: Path) -> None:
    run = ddprof.analyze(repo_root / "sample_traces" / "slow_gpu" / "traces", cache=False)
    assert {"compute", "communication"} <= set(run.kernels["kind"])
    assert run.kernels["kernel"].str.contains("gemm").any()
    busy = run.ledger[["compute", "comm_wait", "comm_transfer", "pipeline_bubble", "memcpy"]].sum(axis=1)
    assert (run.kernels.groupby("rank")["busy_us"].sum() - busy).abs().max() < 1e-3 * busy.max()
    with pytest.raises(NoUsableInput, match="holds no kernels"):
        _ = ddprof.analyze(saved).kernels


def test_what_there_is_can_be_listed() -> None:
    import ddprof

    assert {"analyze", "AnalyzedRun", "step", "annotate"} <= set(dir(ddprof))
    assert all(hasattr(ddprof, name) for name in dir(ddprof))
