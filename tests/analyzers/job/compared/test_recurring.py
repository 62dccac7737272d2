"""A long step that comes again outside the recording is part of the rhythm."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from captured import sidecar_of
from labelled_runs import Runs

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.compared.recurring import recurring

USUAL_MS = 8.0
TRACED_MS = np.array([50.0, 7.0, 7.0, 7.0, 7.0])  # the first holds what is done now and then
IS_LEFT_OUT = np.array([True, False, False, False, False])


def timed(labelled: Runs, every: int, long_ms: float = 30.0, steps: int = 60) -> list[RankFacts]:
    """The ranks of a run, whose timers know a long step in `every` steps (0: none), the traced one aside."""

    def of(index: int) -> dict[str, Any]:
        length_ms = long_ms if every and index % every == 0 else USUAL_MS
        start_ns = index * 10**9
        times = {"start_ns": start_ns, "end_ns": start_ns + int(length_ms * 1e6)}
        return {"index": index, **times, "profiled": 5 <= index < 10}

    sidecar = sidecar_of({"steps": [of(index) for index in range(steps)]})
    return [replace(facts, sidecar=sidecar) for facts in labelled("clean.ddp").job.ranks]


@pytest.mark.parametrize(
    ("every", "long_ms", "recurs"),
    [
        (5, 30.0, True),  # as often as in the recording
        (9, 30.0, True),  # every second recording of this length holds one
        (20, 30.0, False),  # the recording tells far more of it than the job has
        (0, 30.0, False),
        (5, 11.0, False),  # what comes again is another thing: nearer to the usual step
    ],
)
def test_a_long_step_recurs_where_others_are_as_long(labelled: Runs, every: int, long_ms: float, recurs: bool) -> None:
    found = recurring(timed(labelled, every, long_ms), TRACED_MS * 1e6, IS_LEFT_OUT)
    assert found.tolist() == [recurs, False, False, False, False]


def test_one_other_event_is_no_rhythm_and_few_timers_say_nothing(labelled: Runs) -> None:
    assert not recurring(timed(labelled, 14, steps=22), TRACED_MS * 1e6, IS_LEFT_OUT).any()
    assert not recurring(timed(labelled, 5, steps=15), TRACED_MS * 1e6, IS_LEFT_OUT).any()
    assert not recurring(list(labelled("clean.ddp").job.ranks), TRACED_MS * 1e6, IS_LEFT_OUT).any()
