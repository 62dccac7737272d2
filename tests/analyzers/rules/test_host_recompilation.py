"""torch.compile compiles in most steps: the compiler's own ranges say so."""

from pathlib import Path

import pytest
from cpu_loop import Chore, cpu_loop, operators, sampled
from kineto_run import Script
from labelled_runs import candidate, candidates, run_of

ID = "host.recompilation"
COMPILES = "torch/_dynamo/convert_frame.py(500): __call__"


def score(script: Script) -> None:
    """A compiled function that is compiled anew, in 20 ms, and runs."""
    with script.frame("train.py(40): score"):
        with script.frame(COMPILES), script.frame("entire_frame_compile (dynamo_timed)", "cpu_op"):
            script.idle(20_000.0)
        operators(script, "mul", "add")


def in_steps(*which: int) -> Chore:
    """The compiled function in every step, which compiles in these (counted from 0)."""
    calls = iter(range(4))

    def chore(script: Script) -> None:
        if next(calls) in which:
            score(script)

    return chore


@pytest.mark.parametrize(
    ("steps", "is_told"), [((0, 1, 2, 3), True), ((1, 2, 3), True), ((2,), False), ((1, 2), False)]
)
def test_compiling_in_most_steps_is_told_with_its_line(tmp_path: Path, steps: tuple[int, ...], is_told: bool) -> None:
    measures = run_of([sampled(cpu_loop(tmp_path, after=in_steps(*steps)), {"__call__": 10, "main": 1})]).measures
    assert bool(candidates(ID, measures)) is is_told
    if is_told:
        said = candidate(ID, measures)
        assert f"again in {len(steps)} of 4 steps" in said.summary and said.summary.endswith("at train.py:40 score()")
        assert said.lost_us == pytest.approx(20_000.0 * len(steps) / 4, rel=0.01)
        assert "mark_dynamic" in str(said.fixes[0].patch)


def test_it_is_priced_by_the_time_in_the_compiler_on_the_rank_that_compiles(tmp_path: Path) -> None:
    ranks = [cpu_loop(tmp_path, after=in_steps(0, 1, 2, 3) if rank == 1 else None, rank=rank) for rank in range(2)]
    said = candidate(ID, run_of(ranks).measures)
    assert said.ranks == (1,) and said.changes[0].ranks == (1,)
    alone = run_of(ranks[1:])
    assert alone.pricer.gain_us(candidate(ID, alone.measures)) == pytest.approx(20_000.0, rel=0.02)
