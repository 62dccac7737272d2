"""The device drains faster than the host launches."""

from __future__ import annotations

from dataclasses import replace

import pytest
from labelled_runs import Runs, abstains, fires

ID = "host.launch_bound"


def test_suggests_fewer_or_cheaper_launches(labelled: Runs) -> None:
    said = fires(labelled(ID), ID)
    assert said.ranks == ()
    assert any("compile" in fix.suggested for fix in said.fixes)


def test_abstains_on_a_cpu_run(labelled: Runs) -> None:
    measures = labelled("clean.ddp").measures
    ranks = tuple(replace(facts, is_device_rank=False) for facts in measures.job.ranks)
    assert "CPU run" in abstains(ID, replace(measures, job=replace(measures.job, ranks=ranks)))


@pytest.mark.parametrize("name", ["clean.ddp", "clean.fsdp"])
def test_is_silent_on_a_healthy_run(labelled: Runs, name: str) -> None:
    assert labelled(name).said(ID) == []
