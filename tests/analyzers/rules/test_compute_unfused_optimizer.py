"""The optimizer of a CPU rank runs operator by operator: a fused one takes a part of its time."""

from pathlib import Path

import pytest
from cpu_loop import Chore, cpu_loop, operators
from kineto_run import Script
from labelled_runs import candidates, run_of

ID = "compute.unfused_optimizer"


def steps_of(name: str, count: int, dur_us: float) -> Chore:
    """An optimizer of this class that calls so many operators, with 10 us of Python after each."""

    def chore(script: Script) -> None:
        with script.frame(f"Optimizer.step#{name}.step", "user_annotation"):
            operators(script, "addcmul_", count=count, dur_us=dur_us)

    return chore


@pytest.mark.parametrize(
    ("name", "count", "dur_us", "is_told"),
    [("AdamW", 200, 5.0, True), ("AdamW", 200, 50.0, False), ("AdamW", 20, 5.0, False), ("Lamb", 200, 5.0, False)],
)
def test_many_operators_of_an_optimizer_are_told_on_cpu_ranks(
    tmp_path: Path, name: str, count: int, dur_us: float, is_told: bool
) -> None:
    run = run_of([cpu_loop(tmp_path, after=steps_of(name, count, dur_us))])
    told = candidates(ID, run.measures)
    assert len(told) == is_told
    if is_told:
        assert told[0].summary.startswith("the optimizer runs as 200 operators per step, 3 ms")
        assert run.pricer.gain_us(told[0]) == pytest.approx(0.75 * 3_000.0, rel=0.03)
        assert told[0].fixes[0].applies == (("fused", True),)
