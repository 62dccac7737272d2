"""Units of sharded parameters that are so small that many should be one."""

from pathlib import Path

import pytest
from cpu_loop import Chore, cpu_loop
from kineto_run import Script
from labelled_runs import run_of

from ddprof.analyzers.job.host_parts import UNIT_HOOKS
from ddprof.analyzers.job.traffic.unit_latency import UnitLatency
from ddprof.analyzers.rules.evidence.sharded.unit_costs import UnitCosts
from ddprof.findings import Change


@pytest.mark.parametrize(
    ("units", "latency_share", "mean_bytes", "merged"),
    [
        (33, 0.5, 18_000.0, 7),  # so many make a message that is not tiny
        (33, 0.5, 2_000_000.0, 1),
        (33, 0.5, 0.0, 1),  # sizes were not recorded
        (33, 0.8, 2_000_000.0, 4),  # as many as make latency half of a call
        (12, 0.5, 1_000.0, 3),  # four are left to overlap
        (33, 0.4, 18_000.0, 1),
    ],
)
def test_how_many_units_should_be_one(units: int, latency_share: float, mean_bytes: float, merged: int) -> None:
    latency = UnitLatency(1e5, latency_share, True)
    assert UnitCosts(units, 1, latency, 0.0, 0.0, 0.0, True, False, mean_bytes).merged == merged


def hooks(script: Script) -> None:
    """FSDP's Python around the passes of four units, with what it calls inside."""
    for name in ("pre_forward", "post_forward", "pre_backward", "post_backward_reduce"):
        with script.frame(f"FSDP::{name} (0)", "user_annotation"), script.frame("FSDP::all_gather", "user_annotation"):
            script.idle(2_000.0)


@pytest.mark.parametrize(("chore", "gain_us"), [(hooks, 6_000.0), (None, 0.0)])
def test_fewer_units_need_less_python_of_a_cpu_rank(tmp_path: Path, chore: Chore | None, gain_us: float) -> None:
    """Three quarters of 8 ms per step."""
    run = run_of([cpu_loop(tmp_path, after=chore)])
    changed_us = run.pricer.step_us((Change("scale_part", (), (0.25,), UNIT_HOOKS),))
    assert run.measures.step_us - changed_us == pytest.approx(gain_us, rel=0.05, abs=1.0)
