"""Loops in which no optimizer steps: what repeats marks their steps."""

from collections.abc import Callable
from typing import Any

import pytest
from hubs import on_another_thread

from ddprof.capture.guard import Guard
from ddprof.capture.steps.unmarked import BACKWARDS, FETCHES, FORWARDS, UnmarkedSteps

MODEL, DECODER, LOSS = object(), object(), object()


class Loop:
    """Plays a loop, and keeps how many of its iterations had begun at each mark."""

    def __init__(self, allowed: bool = True) -> None:
        self.iterations = 0
        self.marks: list[int] = []
        self.asked: list[int] = []
        self.roots: list[Any] = []
        may_mark: Any = lambda kind: self.asked.append(kind) or allowed  # noqa: E731
        self.steps = UnmarkedSteps(Guard(), lambda: self.marks.append(self.iterations), may_mark, self.roots.append)

    def play(self, iteration: Callable[[UnmarkedSteps], None], count: int) -> None:
        for _ in range(count):
            iteration(self.steps)
            self.iterations += 1

    def every_iteration_from(self, first: int) -> bool:
        """True where one mark stands between any two iterations from `first` on."""
        return [mark for mark in self.marks if mark > first] == list(range(first + 1, self.iterations))


def looping(*events: object) -> Callable[[UnmarkedSteps], None]:
    """An iteration of these events: a fetch, a backward pass, or the forward pass of a module."""

    def iteration(steps: UnmarkedSteps) -> None:
        for event in events:
            if event == "fetch":
                steps.fetch_begins()
            elif event == "backward":
                steps.backward_ended()
            else:
                steps.forward_begins(event)

    return iteration


by_hand = looping("fetch", MODEL, "backward")
by_hand_without_batches = looping(MODEL, LOSS, "backward")
inference = looping("fetch", MODEL, DECODER)


@pytest.mark.parametrize(
    ("iteration", "kind", "settled"),
    [
        *((loop, BACKWARDS, 3) for loop in (by_hand, by_hand_without_batches)),
        *((loop, FORWARDS, 9) for loop in (inference, looping("fetch", *[MODEL] * 20), looping(MODEL, DECODER))),
        (looping("fetch"), FETCHES, 33),
    ],
)
def test_each_iteration_is_one_step(iteration: Callable[[UnmarkedSteps], None], kind: int, settled: int) -> None:
    loop = Loop()
    loop.play(iteration, 60)
    assert loop.steps.kind == kind and loop.every_iteration_from(settled) and loop.steps.under_way


def test_the_root_is_the_first_module_and_neither_one_batch_nor_evaluation_ends_a_step() -> None:
    loop = Loop()
    loop.play(inference, 12)
    assert loop.roots == [MODEL]
    loop = Loop()
    loop.steps.fetch_begins()
    loop.play(by_hand_without_batches, 200)
    assert loop.every_iteration_from(100)
    loop = Loop()
    loop.play(by_hand, 20)
    known = len(loop.marks)
    loop.play(inference, 5)
    assert len(loop.marks) == known + 1  # the step that ended before the evaluation began
    loop.play(by_hand, 1)
    assert len(loop.marks) == known + 1


def test_a_job_with_an_optimizer_is_waited_for_and_one_that_is_no_rank_asked_for_once() -> None:
    loop = Loop()
    loop.steps.optimizer_made()
    loop.play(by_hand, 300)
    loop.play(inference, 100)
    assert (loop.marks, loop.asked) == ([], [])
    loop = Loop(allowed=False)
    loop.play(inference, 100)
    assert (loop.marks, loop.asked) == ([], [FORWARDS])


def test_backward_passes_tell_more_than_calls_and_other_threads_nothing() -> None:
    loop = Loop()
    loop.play(inference, 20)
    loop.play(by_hand, 20)
    assert loop.asked == [FORWARDS, BACKWARDS] and loop.every_iteration_from(23)
    loop = Loop()
    on_another_thread(loop.play, by_hand, 20)
    assert loop.asked == []
