"""Misspelt names are answered with the one that was meant."""

import pytest

from ddprof.untrusted.suggestions import meant


@pytest.mark.parametrize(
    ("word", "wanted"),
    [
        *(("analyse", "analyze"), ("input.stragler", "input.straggler")),
        *(("numworkers", "num_workers"), ("NUM-WORKERS", "num_workers")),
    ],
)
def test_the_word_that_was_meant(word: str, wanted: str) -> None:
    known = ("analyze", "compare", "input.straggler", "input.starved", "num_workers", "prefetch_factor")
    assert meant(word, known) == f" (did you mean {wanted}?)"


@pytest.mark.parametrize("word", ["", "x", "frobnicate", "workers_of_the_world"])
def test_another_word_is_no_guess(word: str) -> None:
    assert meant(word, ("analyze", "compare", "num_workers")) == ""
