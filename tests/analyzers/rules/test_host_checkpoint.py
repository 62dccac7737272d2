"""Saving inside a step stops everybody."""

from __future__ import annotations

from pathlib import Path

import pytest
import retold
from captured import steps, with_sidecars
from labelled_runs import Labelled, Runs, candidate, fires

from ddprof.analyzers.catalogue import catalogue
from ddprof.findings import Abstention

ID = "host.checkpoint"


def test_suggests_asynchronous_saving(labelled: Runs) -> None:
    said = fires(labelled(ID), ID)
    assert said.ranks == ()
    assert "async" in str(said.fixes[0].patch)
    assert said.lost_us == pytest.approx(labelled(ID).label["ledger"]["job"]["checkpoint"], rel=0.02)


def test_of_one_step_that_saves_it_is_not_known_how_often_the_job_does(labelled: Runs, tmp_path: Path) -> None:
    source = labelled(ID)
    for step in range(source.label["steps"]):
        place = retold.retell(source.traces, tmp_path / str(step) / "traces", retold.windows((step,)))
        run = Labelled(ID, source.label, place)
        if run.measures.host_spans_us["checkpoint"].any():
            break
    (said,) = catalogue()[ID].detect(run.measures)
    assert isinstance(said, Abstention)
    assert "how often" in said.reason


def test_saves_outside_the_trace_are_found_in_the_record(labelled: Runs) -> None:
    saves = [{"start_ns": 40_000_000, "dur_ns": 20_000_000, "what": "torch.save"}]
    sidecar = {"steps": steps(100, 1_000_000), "checkpoints": saves}
    said = candidate(ID, with_sidecars(labelled("clean.ddp"), sidecar, {}))
    assert "rank 0" in said.summary
    assert said.ranks == ()  # what the others did is not known
    assert said.ceiling_us == pytest.approx(20 / 90 * labelled("clean.ddp").measures.step_us)


def test_a_rank_that_saves_alone_outside_the_trace_is_named(labelled: Runs) -> None:
    saves = [{"start_ns": 40_000_000, "dur_ns": 20_000_000, "what": "torch.save"}]
    peer = {"schema": "ddprof.sidecar/1", "steps": steps(100, 1_000_000)}
    said = candidate(ID, with_sidecars(labelled("clean.ddp"), {**peer, "checkpoints": saves}, peer))
    assert said.ranks == (0,)
    said = candidate(ID, with_sidecars(labelled("clean.ddp"), {**peer, "checkpoints": saves}))
    assert said.ranks == ()
