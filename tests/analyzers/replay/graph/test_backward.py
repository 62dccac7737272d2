"""Length of the backward pass, behind which communication that starts with it can hide."""

from pathlib import Path

import numpy as np
import pytest
from gloo_traces import TENSOR, Events, annotation, in_steps, operator, transfer
from labelled_runs import Runs

from ddprof.analyzers.facts.model import Phase
from ddprof.analyzers.replay.graph.backward import backward_compute_ns, backward_start_ns
from ddprof.analyzers.replay.graph.build import build_graph

STEPS, LOAD_US, FORWARD_US, BACKWARD_US, TRANSFER_US, OPTIMIZER_US = 6, 30_000.0, 10_000.0, 20_000.0, 8_000.0, 4_000.0
STEP_US = LOAD_US + FORWARD_US + BACKWARD_US + TRANSFER_US + OPTIMIZER_US


def loading(rank: int, began: float) -> Events:
    """A step that loads, goes forward, backward, waits for the transfer and steps the optimizer."""
    forward = began + LOAD_US
    backward = forward + FORWARD_US
    ready = backward + BACKWARD_US
    return [
        annotation(rank, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", began, LOAD_US),
        annotation(rank, "ddprof::forward", forward, FORWARD_US),
        operator(rank, "aten::conv2d", forward, FORWARD_US),
        operator(rank, "aten::mm", backward, BACKWARD_US - 100),
        operator(rank, "c10d::allreduce_", ready - 60, 50, **TENSOR),
        transfer(rank, "gloo:all_reduce", ready - 5, TRANSFER_US + 5, **TENSOR),
        annotation(rank, "ddprof::optimizer", ready + TRANSFER_US, OPTIMIZER_US),
        operator(rank, "aten::add_", ready + TRANSFER_US, OPTIMIZER_US),
    ]


def test_it_is_work_after_forward_or_kernels_from_its_start_to_the_optimizer(tmp_path: Path, labelled: Runs) -> None:
    """20 ms of a step of 72: loading, which is most of the step, hides no communication."""
    for rank in build_graph(in_steps(tmp_path, STEPS, STEP_US, loading).job).ranks:
        assert backward_compute_ns(rank) / 1e3 == pytest.approx(np.full(STEPS, BACKWARD_US), rel=0.02)
    rank = labelled("clean.ddp").pricer.graph.ranks[0]
    phases = rank.facts.phases
    optimizer_ns = np.sort(phases["start_ns"][phases["phase"] == Phase.OPTIMIZER])
    ops = rank.ops
    for step, found in enumerate(backward_compute_ns(rank)):
        mine = ~ops.is_comm & (ops.start_ns >= backward_start_ns(rank, step)) & (ops.launch_ns < optimizer_ns[step])
        assert found == pytest.approx(float(ops.dur_ns[mine].sum()))
