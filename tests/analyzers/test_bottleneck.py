"""What holds the step once changes are made."""

from labelled_runs import Runs
from predictions import predicted

from ddprof.analyzers.bottleneck import bottleneck


def test_what_is_left_is_named(labelled: Runs) -> None:
    run = labelled("straggler.compute")
    assert bottleneck(run.pricer, ()).id == "straggler.compute"
    assert bottleneck(run.pricer, predicted(run, "device=replaced@2").changes).id == "compute"
