"""An optimizer of many tiny kernels."""

from labelled_runs import Runs, fires

ID = "compute.unfused_optimizer"


def test_suggests_the_fused_optimizer(labelled: Runs) -> None:
    said = fires(labelled(ID), ID)
    assert said.fixes[0].setting == "fused"
