"""Copies from pageable memory with nothing beside them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from kineto_run import Script, loaded
from labelled_runs import Labelled, candidate, fires

from ddprof.analyzers.engine import LoadedRun
from ddprof.report import phrases

ID = "input.pageable_copy"


def test_names_pinned_memory(faulty: Labelled) -> None:
    said = fires(faulty, ID)
    assert "pin_memory" in " ".join(f"{fix.setting} {fix.patch}" for fix in said.fixes)
    assert said.lost_us > 0.1 * faulty.measures.step_us


def test_names_the_rank_whose_copies_take_far_longer_unless_it_copies_more(faulty: Labelled) -> None:
    measures = faulty.measures
    times = 1 + 19 * (np.arange(len(measures.pageable_us)) == 1)
    slower = replace(measures, pageable_us=measures.pageable_us * times)
    said = candidate(ID, slower)
    assert said.ranks == (measures.job.rank_ids[1],) and "bus of rank" in said.fixes[0].setting
    fed = measures.job.ranks[1]
    more = fed.device_ops.replace(size_bytes=20 * np.maximum(fed.device_ops["size_bytes"], 1))
    ranks = tuple(replace(f, device_ops=more) if f is fed else f for f in measures.job.ranks)
    assert candidate(ID, replace(slower, job=replace(measures.job, ranks=ranks))).ranks == ()


TENSOR = 4 * 2**20
SIZES = [TENSOR, TENSOR, 2 * TENSOR, 2 * TENSOR]  # of the parameters and their gradients
Copies = Callable[[Script], None]


def offload(script: Script) -> None:
    """Gradients go to the host, an optimizer there, parameters come back."""
    for size in SIZES:
        script.copy_pageable(size, 900.0, to_host=True)
    script.host("Optimizer.step#SGD.step", 500.0, "user_annotation")
    for size in SIZES:
        script.copy_pageable(size, 400.0)


def results(script: Script) -> None:
    script.copy_pageable(3 * TENSOR, 2_000.0, to_host=True)


def batch(script: Script) -> None:
    """A batch, and the loss that is read."""
    script.copy_pageable(3 * TENSOR, 2_000.0)
    script.copy_pageable(4, 2.0, to_host=True)


def in_backward(script: Script) -> None:
    with script.frame("ddprof::backward", "user_annotation"):
        script.copy_pageable(3 * TENSOR, 2_000.0)


def saved(script: Script) -> None:
    with script.frame("ddprof::checkpoint", "user_annotation"):
        results(script)


def run_with(copies: Copies, folder: Path) -> LoadedRun:
    script = Script()
    for _ in script.steps(4):
        script.launch(dur_us=100.0, times=10)
        copies(script)
    return loaded([script], folder)


@pytest.mark.parametrize(
    ("copies", "words", "bound", "fix"),
    [
        (offload, "state is kept on the host (CPU offload)", "host", "on the device"),
        (results, "tensors are copied from the device to pageable memory", "host", "pinned buffers"),
        (batch, "batches are copied from pageable memory", "input", "True"),
        (in_backward, "tensors are copied to the device from pageable memory", "host", "pinned buffers"),
    ],
)
def test_says_what_is_copied_and_which_way(tmp_path: Path, copies: Copies, words: str, bound: str, fix: str) -> None:
    run = run_with(copies, tmp_path)
    said = candidate(ID, run.measures)
    assert said.summary.startswith(words) and said.fixes[-1].suggested.startswith(fix)
    assert run.report.verdict.bound == bound and run.report.findings[0].id == ID
    assert phrases.bound_word(run.report).startswith("Input" if bound == "input" else "Copy")
    own = tuple(replace(f, strings=[name.strip("aten:PrfilS#") for name in f.strings]) for f in run.measures.job.ranks)
    other = candidate(ID, replace(run.measures, job=replace(run.measures.job, ranks=own)))  # no name of PyTorch's
    assert said.fixes[-1].patch and other.fixes[-1].patch is None and other.summary.startswith(("what the", "data is"))


def test_state_on_the_host_is_priced_as_if_it_stayed_on_the_device(tmp_path: Path) -> None:
    run = run_with(offload, tmp_path)
    said, gain_us = candidate(ID, run.measures), run.report.findings[0].recoverable_us.value
    assert said.lost_us == pytest.approx(4 * 1_300.0, rel=0.05) and gain_us > 0.95 * said.lost_us
    ways = [evidence.text for evidence in said.evidence[1:3]]
    assert [way.partition(":")[0] for way in ways] == ["from the device", "to the device"]
    assert all("per step in 4 copies with 24 MiB, by aten::copy_" in way for way in ways)


@pytest.mark.parametrize("copies", [saved, lambda script: script.copy_pageable(4, 300.0, to_host=True)])
def test_copies_of_a_save_and_values_that_the_host_reads_are_other_findings(tmp_path: Path, copies: Copies) -> None:
    assert not run_with(copies, tmp_path).measures.pageable_us.any()
