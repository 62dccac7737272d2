"""The device drains faster than the host launches."""

from labelled_runs import Runs, abstains, fires, on_every_rank

ID = "host.launch_bound"


def test_suggests_fewer_or_cheaper_launches_to_a_device(labelled: Runs) -> None:
    said = fires(labelled(ID), ID)
    assert any("compile" in fix.suggested for fix in said.fixes)
    old = {"top": {"categories": {"Operator": 1_048}}, "counts": {"operators_per_step": 262}}
    assert "this old profiler" in abstains(ID, on_every_rank(labelled(ID).measures, **old))
    measures = labelled("clean.ddp").measures
    assert "CPU run" in abstains(ID, on_every_rank(measures, is_device_rank=False))
