"""Notes on steps that were left out of the steady ones."""

from captured import steps, with_sidecars
from labelled_runs import Runs

from ddprof.analyzers.job.model import LeftOut
from ddprof.analyzers.job.steps.left_out import left_out_note


def test_a_long_step_that_start_up_does_not_explain_is_told_with_both_readings(labelled: Runs) -> None:
    ranks = labelled("clean.ddp").job.ranks
    waited, cold = LeftOut(8, 194_000_000, "mostly waiting for the next batch"), LeftOut(7, 900_000_000, "loading code")
    (note,) = left_out_note(ranks, (cold, waited), 27_000_000, 1)
    assert "excluded from the 27 ms step; if it comes again as often, a step takes 110 ms" in note.effect
    assert "again" not in left_out_note(ranks, (cold,), 27_000_000, 1)[0].effect
    record = {"steps": [step | {"profiled": step["index"] < 3} for step in steps(40, 31_000_000)]}
    timed = with_sidecars(labelled("clean.ddp"), *[record] * len(ranks)).job.ranks
    (note,) = left_out_note(timed, (cold, waited), 27_000_000, 1)
    assert note.effect.endswith("by the timers of the whole run the mean step takes 31 ms")
