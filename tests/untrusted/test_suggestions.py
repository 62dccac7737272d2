"""Misspelt names are answered with the one that was meant."""

import pytest

from ddprof.untrusted.suggestions import meant

KNOWN = ("analyze", "compare", "input.straggler", "input.starved", "num_workers", "prefetch_factor")
MEANT = {"analyse": "analyze", "input.stragler": "input.straggler"}
MEANT |= dict.fromkeys(("numworkers", "NUM-WORKERS"), "num_workers")


@pytest.mark.parametrize("word", [*MEANT, "", "x", "frobnicate", "workers_of_the_world"])
def test_the_word_that_was_meant_and_another_is_no_guess(word: str) -> None:
    assert meant(word, KNOWN) == (f" (did you mean {MEANT[word]}?)" if word in MEANT else "")
