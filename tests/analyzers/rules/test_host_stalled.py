"""The host stops for long moments inside any call."""

from pathlib import Path

import numpy as np
import pytest
from kineto_run import Script, loaded
from labelled_runs import candidates

from ddprof.analyzers.engine import LoadedRun

ID = "host.stalled"


def run(folder: Path, seeds: list[int], stop_us: float = 4_000.0, every: int = 25) -> LoadedRun:
    """Independent ranks whose hosts stop in about one of `every` calls; a seed of 0 never stops."""
    scripts = []
    for seed in seeds:
        draw, script = np.random.default_rng(seed), Script()
        for step in script.steps(4):
            for call in range(40):
                script.launch()
                stops = seed and draw.integers(every) == 0 and (step, call) != (0, 0)
                script.host("aten::view", stop_us if stops else 2.0)
        scripts.append(script)
    return loaded(scripts, folder)


def test_stops_on_every_rank_are_of_the_whole_job_and_not_launch_bound(tmp_path: Path) -> None:
    made = run(tmp_path, [1, 2, 3])
    (candidate,) = candidates(ID, made.measures)
    assert candidate.ranks == () and "stall in calls" in candidate.summary
    gain = made.pricer.gain_us(candidate)
    assert 0.5 * made.measures.stalled_us.max() < gain <= made.measures.stalled_us.max() * 1.01
    words = " ".join(evidence.text for evidence in candidate.evidence)
    assert all(told in words for told in ("aten::view", "on 3 of 3 ranks", "4 ms"))
    made = run(tmp_path, [1, 2], stop_us=20_000.0)
    assert made.report.verdict.bound == "host" and made.report.findings[0].id == ID
    assert "compile" not in " ".join(fix.suggested for fix in made.report.findings[0].fixes)


@pytest.mark.parametrize(("seeds", "every"), [([0, 0], 25), ([5], 10_000)])
def test_a_host_without_stops_or_with_a_single_one_is_not_accused(tmp_path: Path, seeds: list[int], every: int) -> None:
    assert candidates(ID, run(tmp_path, seeds, every=every).measures) == []
