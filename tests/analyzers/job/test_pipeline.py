"""Stages and microbatches follow from who sends messages to whom."""

from __future__ import annotations

import numpy as np
from corpus import SCENARIOS
from labelled_runs import Runs


def test_messages_join_two_neighbouring_stages(labelled: Runs) -> None:
    job = labelled("clean.pp").job
    messages = np.flatnonzero(job.instances["is_message"])
    assert len(messages)
    assert (job.instances["members"][messages] == 2).all()
    assert job.pipeline is not None
    assert job.pipeline.stages == ((0,), (1,))
    assert job.pipeline.microbatches == SCENARIOS["clean.pp"].parallel.microbatches
