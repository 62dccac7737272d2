"""The optimizer of a CPU rank runs operator by operator: a fused one takes a part of its time."""

from pathlib import Path

import pytest
from cpu_loop import Chore, cpu_loop, operators
from kineto_run import Script
from labelled_runs import candidates, run_of

ID = "compute.unfused_optimizer"


def steps_of(name: str, count: int) -> Chore:
    """An optimizer of this class that calls so many operators of 50 us, with 10 us of Python after each."""

    def chore(script: Script) -> None:
        with script.frame(f"Optimizer.step#{name}.step", "user_annotation"):
            operators(script, "addcmul_", count=count, dur_us=50.0)

    return chore


@pytest.mark.parametrize(
    ("name", "count", "is_told"), [("AdamW", 200, True), ("AdamW", 20, False), ("Lamb", 200, False)]
)
def test_many_operators_of_an_optimizer_are_told_on_cpu_ranks(
    tmp_path: Path, name: str, count: int, is_told: bool
) -> None:
    run = run_of([cpu_loop(tmp_path, after=steps_of(name, count))])
    told = candidates(ID, run.measures)
    assert len(told) == is_told
    if is_told:
        assert told[0].summary.startswith("the optimizer runs as 200 operators per step, 12 ms")
        assert run.pricer.gain_us(told[0]) == pytest.approx(0.75 * 12_000.0, rel=0.03)
        assert told[0].fixes[0].applies == (("fused", True),)
