"""Equality of the trained results of two runs, also where the baseline does not repeat itself."""

import pytest

from ddprof.slices.tuning.runs.sameness import compare
from ddprof.trials.model import Held


def _held(digest: str, *sample: float, loss: float | None = None) -> dict[str, Held]:
    return {str(rank): Held(f"{digest}{rank}", sample, loss) for rank in (0, 1)}


def test_the_same_bits_are_the_same_and_others_differ_where_the_baseline_repeats_itself() -> None:
    assert compare(_held("a", 1.0), [_held("b", 1.1), _held("a", 1.0)]).kind == "same"
    assert compare({**_held("a", 1.0), "1": Held("z", (1.0,))}, [_held("a", 1.0)] * 2).kind == "differs"
    found = compare(_held("b", 3.0, 4.5, loss=0.2), [_held("a", 3.0, 4.0, loss=0.1)] * 2)
    assert found.kind == "differs" and found.baseline_distance == 0.0 and found.loss == (0.2, 0.1)
    assert found.distance == pytest.approx(0.1)


def test_a_baseline_that_varies_is_the_measure_and_one_alone_tells_nothing() -> None:
    baselines = [_held("a", 1.0, 0.0), _held("b", 1.001, 0.0)]
    assert compare(_held("c", 1.004, 0.0), baselines).kind == "like_baseline"
    assert compare(_held("c", 1.2, 0.0), baselines).kind == "differs"
    assert compare(_held("c", 1.2), baselines).kind == "differs"  # other tensors
    assert compare(_held("b", 1.0), [_held("a", 1.0)]).kind == "unknown"
    assert compare({}, [_held("a", 1.0)]).kind == compare(_held("a"), []).kind == "unknown"


def test_diverged_parameters_have_a_distance() -> None:
    found = compare(_held("c", 2e200), [_held("a", 1e200), _held("b", 3e200)])
    assert found.kind == "like_baseline" and found.distance == pytest.approx(1 / 3)
