"""Marks on the device alone: the host passed them before it launched what the step begins with, on any stream."""

from pathlib import Path

import pytest
import retold
from labelled_runs import Runs
from retold import Events


@pytest.mark.parametrize("name", ["clean.pp", "clean.ddp", "clean.fsdp"])
def test_what_the_host_launches_first_is_of_the_step_that_follows(labelled: Runs, tmp_path: Path, name: str) -> None:
    """A later stage of a pipeline receives on a stream without marks before it computes on the one that has them."""

    @retold.each
    def device_marks(events: Events) -> None:
        marks = [e for e in events if e.get("cat") == "gpu_user_annotation" and e["name"].startswith("ProfilerStep")]
        events[:] = [e for e in events if e.get("cat") not in ("user_annotation", "gpu_user_annotation")] + marks

    run = retold.told(labelled(name), tmp_path, device_marks)
    assert {facts.step_source for facts in run.job.ranks} == {"profiler_step"}
    assert run.report.replay.error < 0.01
    for one, other in zip(labelled(name).job.ranks, run.job.ranks, strict=True):
        assert one.steps["index"].tolist() == other.steps["index"].tolist()
        assert other.steps["start_ns"] / 1e6 == pytest.approx(one.steps["start_ns"] / 1e6, abs=0.5)
