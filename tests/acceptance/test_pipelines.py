"""Each schedule of torch's pipelining is known by name, microbatches and chunks, and its bubble fits the formula."""

from pathlib import Path

import pytest
from called import captured, torchrun

from ddprof.analyzers.engine import load_runs
from ddprof.analyzers.job.pipelines.bubble import bubble_share

pytestmark = [pytest.mark.torch, pytest.mark.slow]
MICROBATCHES = 8
# Name -> chunks of a rank.
SCHEDULES = {"GPipe": 1, "1F1B": 1, "Interleaved1F1B": 2, "LoopedBFS": 2, "InterleavedZeroBubble": 2}
SCHEDULES |= {"ZBVZeroBubble": 2, "DualPipeV": 2}


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
