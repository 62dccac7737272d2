"""Copies from pageable memory with nothing beside them."""

from dataclasses import replace

import numpy as np
from labelled_runs import Runs, candidate, fires

ID = "input.pageable_copy"


def test_names_pinned_memory(labelled: Runs) -> None:
    said = fires(labelled(ID), ID)
    assert "pin_memory" in " ".join(f"{fix.setting} {fix.patch}" for fix in said.fixes)
    assert said.lost_us > 0.1 * labelled(ID).measures.step_us


def test_names_the_rank_whose_copies_take_far_longer_unless_it_copies_more(labelled: Runs) -> None:
    measures = labelled(ID).measures
    copies = measures.pageable_us.copy()
    copies[1] *= 20
    slower = replace(measures, pageable_us=copies)
    said = candidate(ID, slower)
    assert said.ranks == (measures.job.rank_ids[1],) and "bus of rank" in said.fixes[0].setting
    fed = measures.job.ranks[1]
    more = fed.device_ops.replace(size_bytes=20 * np.maximum(fed.device_ops["size_bytes"], 1))
    ranks = tuple(replace(f, device_ops=more) if f is fed else f for f in measures.job.ranks)
    assert candidate(ID, replace(slower, job=replace(measures.job, ranks=ranks))).ranks == ()
