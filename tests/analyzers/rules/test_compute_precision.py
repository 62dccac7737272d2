"""Matrix products in single precision."""

from labelled_runs import Runs, fires

ID = "compute.precision"


def test_suggests_a_lower_precision(labelled: Runs) -> None:
    said = fires(labelled(ID), ID)
    assert said.fixes[0].current == "fp32"
    assert "bf16" in said.fixes[0].suggested and said.fixes[0].applies == (("autocast", "bf16"),)
