"""The loader planner: its advice against the generator's sweep, and beside what the report says."""

from dataclasses import replace

import pytest
from captured import with_sidecars
from labelled_runs import Runs, candidate

from ddprof.analyzers.settings.loader import plan_loader
from ddprof.analyzers.settings.present import Present


def test_the_advised_workers_are_as_good_as_the_best_of_the_sweep(labelled: Runs) -> None:
    run = labelled("input.starved")
    truth = {int(k): us for k, us in run.fault["sweep"]["num_workers"].items()}
    plan = plan_loader(run.pricer, Present(num_workers=2))
    assert truth[plan.advised_workers] <= min(truth.values()) * 1.03 and plan.advised_workers <= 8
    assert plan.kind is None and plan.source == "arrivals"


@pytest.mark.parametrize(
    ("what", "cpu_share", "cores", "advised", "said"),
    [
        ("remote store", 0.0, 4, "more than cores", "num_workers"),
        ("remote store, few cores", 0.02, 1, "more than cores", "num_workers"),
        ("cores", 1.0, 4, "no more than cores", "cores of this host cannot"),
        ("lock", 0.0, 64, "as it is", "a separate file"),
    ],
)
def test_plan_and_report_agree_on_what_workers_win(
    labelled: Runs, what: str, cpu_share: float, cores: int, advised: str, said: str
) -> None:
    run = labelled("input.starved")
    fetching = {"workers": 2, "fetch_ns": 180_000_000, "samples": 32, "cpu_ns": int(180_000_000 * cpu_share) or 1}
    fetching |= {"turn_ns": 90_000_000} if what == "lock" else {}
    processors = {"usable": cores, "local_ranks": len(run.job.ranks)}
    given = with_sidecars(run, {"fetching": fetching, "dataloader": {"num_workers": 2}, "processors": processors})
    plan = plan_loader(replace(run.pricer, measures=given, _known_us={}), Present(num_workers=2, cores=cores))
    finding = candidate("input.starved", given)
    counts = [int(f.suggested) for f in finding.fixes if f.setting == "num_workers"]
    assert (counts[0] if counts else 2) == plan.advised_workers
    told = " ".join(f.why for f in finding.fixes)
    assert ("cores of this host" in told) == (what == "cores")  # a fetch that waits needs no core
    if what == "lock":
        assert not counts and min(p.step_us for p in plan.workers.points if p.value) >= plan.step_us * 0.999
    assert any(said in f"{f.setting} {f.suggested} {f.why}" for f in finding.fixes)
    assert {
        "more than cores": plan.advised_workers > cores,
        "no more than cores": plan.advised_workers <= cores,
        "as it is": plan.advised_workers == 2 and plan.turn_us == 90_000,
    }[advised]
