"""Every loader too slow: workers are the fix; without loader ranges nothing is said."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from labelled_runs import Runs, abstains, fires

ID = "input.starved"


def test_blames_the_job_and_names_workers(labelled: Runs) -> None:
    said = fires(labelled(ID), ID)
    assert said.ranks == ()
    assert "num_workers" in [fix.setting for fix in said.fixes]
    truth = labelled(ID).label["ledger"]["job"]["dataloader"]
    assert said.lost_us == pytest.approx(truth, rel=0.02)


def test_one_late_loader_is_not_starvation(labelled: Runs) -> None:
    assert labelled("input.straggler").said(ID) == []


def test_abstains_without_loader_ranges(labelled: Runs) -> None:
    measures = labelled("clean.ddp").measures
    none = replace(measures, host_counts={**measures.host_counts, "dataloader": np.zeros(4)})
    assert "no loader range" in abstains(ID, none)


@pytest.mark.parametrize("name", ["clean.ddp", "clean.fsdp"])
def test_is_silent_on_a_healthy_run(labelled: Runs, name: str) -> None:
    assert labelled(name).said(ID) == []
