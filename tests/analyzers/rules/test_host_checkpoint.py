"""Saving inside a step stops everybody."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import retold
from captured import steps, with_sidecars
from kineto_run import Script, loaded
from labelled_runs import Labelled, abstains, candidate, fires

ID = "host.checkpoint"


def test_suggests_asynchronous_saving_also_of_saves_outside_the_trace(faulty: Labelled, healthy: Labelled) -> None:
    said = fires(faulty, ID)
    assert "async" in str(said.fixes[0].patch)
    assert said.lost_us == pytest.approx(faulty.label["ledger"]["job"]["checkpoint"], rel=0.02)
    # A rank is named where the others are known not to save.
    run, peer = healthy, {"steps": steps(100, 1_000_000)}
    saving = {**peer, "checkpoints": [{"start_ns": 40_000_000, "dur_ns": 20_000_000, "what": "torch.save"}]}
    for sidecars, ranks in (((saving, {}), ()), ((saving, peer), (0,)), ((saving,), ())):
        assert candidate(ID, with_sidecars(run, *sidecars)).ranks == ranks
    measures = with_sidecars(run, saving, {})
    for traced_us in (0.0, 1e-4 * measures.step_us):  # so little in a traced step prices nothing
        spans = {**measures.host_spans_us, "checkpoint": np.full(4, traced_us)}
        said = candidate(ID, replace(measures, host_spans_us=spans))
        assert "rank 0" in said.summary and said.most_us == pytest.approx(20 / 90 * run.measures.step_us)


@pytest.mark.parametrize(("of_others", "ranks"), [(8, ()), (1, (0,))])
def test_who_saves_is_told_by_the_whole_run(healthy: Labelled, of_others: int, ranks: tuple[int, ...]) -> None:
    """Rank 0 saves for half of a traced step and in 16 of 100 others; its peers in 8 or in 1 of these."""
    length_ns = round(1e3 * healthy.measures.step_us)
    records = [
        {"steps": steps(100, length_ns)}
        | {"checkpoints": [{"start_ns": at * 5 * length_ns, "dur_ns": length_ns} for at in range(count)]}
        for count in (16, of_others, of_others, of_others)
    ]
    measures = with_sidecars(healthy, *records)
    spans = {**measures.host_spans_us, "checkpoint": np.array([0.5 * measures.step_us, 0.0, 0.0, 0.0])}
    assert candidate(ID, replace(measures, host_spans_us=spans)).ranks == ranks


def test_of_one_step_that_saves_it_is_not_known_how_often_the_job_does(faulty: Labelled, tmp_path: Path) -> None:
    source = faulty
    for step in range(source.label["steps"]):
        run = retold.told(source, tmp_path / str(step), retold.windows((step,)))
        if run.measures.host_spans_us["checkpoint"].any():
            break
    assert "frequency of saves" in abstains(ID, run.measures)


def test_steps_between_two_saves_are_no_part_of_saving(tmp_path: Path) -> None:
    """Their hosts wait for their devices nearly all the time, as one does that copies state."""
    script = Script()
    for step in script.steps(6):
        script.launch(dur_us=4_000.0, times=5)
        script.synchronise("cudaStreamSynchronize")
        if step in (1, 3, 5):
            script.host("save_checkpoint", 5_000.0, "user_annotation")
    made = loaded([script], tmp_path)
    assert made.pricer.gain_us(candidate(ID, made.measures)) == pytest.approx(2_500.0, rel=0.05)
