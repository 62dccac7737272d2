"""Double precision is told by the parameters that capture recorded, and priced at half of compute and bytes."""

import pytest
from captured import with_sidecars
from labelled_runs import Labelled, candidates

ID = "compute.precision"


def recorded(dtype: str) -> dict[str, dict[str, object]]:
    return {"parameters": {"count": 10**6, "size_bytes": 8 * 10**6, "dtype": dtype}}


@pytest.mark.parametrize(("other", "is_told"), [("float64", True), ("float32", False)])
def test_a_model_in_double_precision_is_told(healthy: Labelled, other: str, is_told: bool) -> None:
    """All ranks have it, or something else is in the way of their copies being alike."""
    measures = with_sidecars(healthy, recorded("float64"), recorded(other))
    told = candidates(ID, measures)
    assert [said.summary.startswith("the model computes in double precision") for said in told] == [True] * is_told
    if is_told:
        gain_us = healthy.pricer.gain_us(told[0])
        assert 0.4 * measures.step_us < gain_us < 0.55 * measures.step_us
        assert told[0].fixes[0].suggested == "float32" and told[0].fixes[0].alters is not None
