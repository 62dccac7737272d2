"""Advice that changes what is computed: followed it trains the same, or it has a condition, or it is not given.
And one loop on two nodes, started by torchrun each, is one report: in a folder they share, in two, and in a store.
Each schedule of torch's pipelining is known by name, microbatches and chunks, and its bubble fits the formula."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from called import HERE, call, captured, told, torchrun
from ports import free_port

from ddprof.analyzers.engine import load_runs
from ddprof.analyzers.job.pipelines.bubble import bubble_share

pytestmark = [pytest.mark.torch, pytest.mark.slow]

MICROBATCHES = 8
# Name -> chunks of a rank.
SCHEDULES = {"GPipe": 1, "1F1B": 1, "Interleaved1F1B": 2, "LoopedBFS": 2, "InterleavedZeroBubble": 2}
SCHEDULES |= {"ZBVZeroBubble": 2, "DualPipeV": 2}
# Shape -> what is said of reducing less often: "" without a condition, None where it is not said.
SAID = {
    **dict.fromkeys(("plain", "lbfgs", "sam", "gan", "func", "ema", "rl")),
    "accumulated": "",
    "clipped": "Check first that nothing zeroes or reads gradients between these backward passes",
}


@pytest.mark.parametrize("shape", SAID)
def test_followed_advice_trains_the_same(tmp_path: Path, shape: str) -> None:
    run = captured(tmp_path, torchrun(2, "results/loops.py", shape, str(tmp_path / "as_it_is")), "--skip", "3")
    report = told("analyze", run, "--format", "json")
    fixes = [fix for finding in report["findings"] for fix in finding["fixes"]]
    # Where bytes are too many for the link, larger batches are named, with what that asks for.
    said = (fix["condition"] for fix in fixes if "no_sync" in (fix["patch"] or ""))
    fewer = [condition for condition in said if "batch" not in condition]
    assert fewer in ([], [SAID[shape]]) and (fewer or SAID[shape] != ""), report["findings"]
    for fix in fixes:
        if "barrier" in fix["setting"] or "over all ranks" in fix["setting"]:
            assert fix["condition"], fix
    if fewer == [""]:
        call(torchrun(2, "results/loops.py", shape, str(tmp_path / "kept"), "kept"))
        for rank in range(2):
            before, after = (torch.load(tmp_path / f"{name}.{rank}") for name in ("as_it_is", "kept"))
            assert all(torch.allclose(before[name], after[name], rtol=1e-5, atol=1e-7) for name in before)


@pytest.mark.parametrize("out", ["{0}/runs", "{0}/own{1}", "file://{0}/store", "s3"])
def test_two_nodes_are_one_report(tmp_path: Path, out: str, request: pytest.FixtureRequest) -> None:
    out = request.getfixturevalue("bucket") + "/runs" if out == "s3" else out
    port, started, script = free_port("127.0.0.2"), [], [str(HERE / "results" / "loops.py"), "plain"]
    for node in range(2):
        run = [sys.executable, "-m", "ddprof.cli.run", "--out", out.format(tmp_path, node), "--skip", "3", "--"]
        nodes = ["--nnodes=2", f"--node-rank={node}", "--nproc-per-node=1"]
        address = ["--master-addr=127.0.0.2", f"--master-port={port}"]
        launch = [sys.executable, "-m", "torch.distributed.run", *nodes, *address]
        started.append(subprocess.Popen([*run, *launch, *script, str(tmp_path / "out")], cwd=tmp_path))
    assert [each.wait(timeout=900) for each in started] == [0, 0]
    given = sorted({out.format(tmp_path, node) for node in range(2)})
    said = call([sys.executable, "-m", "ddprof.cli.main", "analyze", *given])
    assert "2 ranks" in said.splitlines()[0] and "of 2 ranks" not in said, said


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_is_known_with_its_bubble(tmp_path: Path, name: str, ranks: int) -> None:
    (loaded,) = load_runs([captured(tmp_path, torchrun(ranks, "pipelines/schedules.py", name, str(MICROBATCHES)))])
    pipeline, measures = loaded.job.pipeline, loaded.measures
    assert pipeline is not None and not pipeline.unsure
    assert pipeline.schedule == f"Schedule{name}" and len(pipeline.stages) == ranks
    assert (pipeline.microbatches, pipeline.interleave) == (MICROBATCHES, SCHEDULES[name])
    work_us = float(measures.stage_work_us.mean())
    bubble_us = float(measures.cause_us("pipeline_bubble").mean())
    assert 0 < bubble_us <= 1.001 * work_us * bubble_share(pipeline, MICROBATCHES, SCHEDULES[name])
    assert not loaded.job.not_compared  # the messages of the ranks are those of one run
