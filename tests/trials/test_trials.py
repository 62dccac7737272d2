"""The sequential test, how often it errs and that it gives up no true winner, and tune.json, read as it was written."""

import math
from pathlib import Path

import numpy as np
import pytest
from fake_runs import Job, candidate, journal
from hypothesis import given, settings
from hypothesis import strategies as st

from ddprof.errors import NoUsableInput
from ddprof.slices.tuning.search import search
from ddprof.slices.tuning.session import result
from ddprof.trials import paired
from ddprof.trials.document import FILE, read_document, read_state, write_document
from ddprof.trials.paired import LEAST_GAIN, LOOKS, LOST, MOST_PAIRS, OPEN, WON, gain, looks_at, outcome

DRAWS = {
    "normal": lambda g, n: g.normal(size=n),
    "heavy tails": lambda g, n: g.standard_t(3, size=n) / math.sqrt(3),
    "skewed": lambda g, n: g.exponential(size=n) - g.exponential(size=n),  # both runs of a pair have hiccups
}


def _ended(logs: np.ndarray, least_share: float = LEAST_GAIN) -> str:
    """The test as it is used: looked at as pairs come, ended once decided."""
    for count in range(1, len(logs) + 1):
        state = outcome(logs[:count].tolist(), least_share=least_share) if looks_at(count) else OPEN
        if state != OPEN:
            return state
    return OPEN


@pytest.mark.parametrize("kind", sorted(DRAWS))
@pytest.mark.parametrize("noise", [0.01, 0.1, 0.5])
def test_equal_runs_give_a_winner_in_fewer_cases_than_allowed(kind: str, noise: float) -> None:
    """Half of the error of 5 % lies on the side of a gain."""
    generator = np.random.default_rng(11)
    won = sum(_ended(noise * DRAWS[kind](generator, MOST_PAIRS)) == WON for _ in range(2000))
    assert won / 2000 <= 0.025 + 3 * math.sqrt(0.025 * 0.975 / 2000)


@pytest.mark.parametrize("noise", [0.01, 0.1])
def test_the_interval_holds_at_all_looks_together(noise: float) -> None:
    missed = 0
    for logs in math.log(0.8) + noise * np.random.default_rng(5).normal(size=(2000, MOST_PAIRS)):
        looks = [gain(logs[:count].tolist()) for count in LOOKS]
        missed += any(not (g.low <= 0.2 <= g.high) for g in looks)  # type: ignore[operator, union-attr]
    assert missed / 2000 <= paired.ERROR


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), share=st.floats(0.1, 0.8), noise=st.floats(0.001, 0.02))
def test_a_gain_well_above_the_noise_always_wins(seed: int, share: float, noise: float) -> None:
    """Five times the noise of a pair above what is worth having: given up in one of ten million."""
    drawn = np.clip(np.random.default_rng(seed).normal(size=MOST_PAIRS), -3, 3)
    assert _ended(math.log(1 - share) + noise * drawn) == WON


def test_a_gain_of_twice_the_noise_is_hardly_ever_given_up_early() -> None:
    drawn = math.log(1 - 0.2) + 0.08 * np.random.default_rng(3).normal(size=(2000, 2))
    assert sum(outcome(logs.tolist()) == LOST for logs in drawn) / 2000 < 0.005


def test_a_loser_is_given_up_after_two_pairs_and_before_the_first_look_there_is_no_interval() -> None:
    assert outcome([0.1]) == OPEN and outcome([0.1, 0.2]) == LOST and outcome([math.log(0.98)] * 3) == LOST
    small = [math.log(1 - share) for share in (0.031, 0.029, 0.029)]
    assert outcome(small) == OPEN and outcome(small * 4) == LOST
    found = gain([math.log(0.5), math.log(0.51), math.log(0.49)])
    assert found is not None and found.low is not None and found.high is not None
    assert 0 < found.low < found.share < found.high
    assert gain([]) is None and outcome([]) == OPEN
    found = gain([math.log(0.5)])
    assert found is not None and found.low is None and found.share == pytest.approx(0.5)
    assert paired.smallest_seen([0.0, 0.1]) is None


@pytest.mark.parametrize("pairs", [4, 8])
def test_the_smallest_gain_that_is_told_is_found_in_most_attempts(pairs: int) -> None:
    logs = np.linspace(-0.05, 0.05, pairs)
    share, noise = paired.smallest_seen(logs.tolist()), float(np.std(logs, ddof=1))
    assert share is not None and paired.scatter_borne(share, pairs) == pytest.approx(noise)
    drawn = math.log(1 - share) + noise * np.random.default_rng(7).normal(size=(1000, pairs))
    told = [gain(logs.tolist()) for logs in drawn]
    assert 0.7 < sum(one is not None and one.low is not None and one.low > 0 for one in told) / 1000 < 0.95


def test_an_answer_is_read_as_it_was_written(tmp_path: Path) -> None:
    made = journal(tmp_path, Job({"num_workers=4": 0.5}))
    assert read_document(tmp_path).result is None
    answer = result(made, search(made, [candidate("num_workers", 4)]))
    write_document(made.state, tmp_path, answer)
    assert read_document(tmp_path).result == answer  # who resumes needs none
    assert read_document(tmp_path).trials == read_state(tmp_path).trials == made.state.trials
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_what_is_damaged_another_schema_or_no_file_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(NoUsableInput, match="No such file"):
        read_document(tmp_path)
    for text in ("", "{", "[]", '{"schema": "ddprof.tune/1"}', "[" * 9_000):
        (tmp_path / FILE).write_text(text)
        with pytest.raises(NoUsableInput, match="damaged"):
            read_document(tmp_path)
    (tmp_path / FILE).unlink()
    journal(tmp_path, Job())
    (tmp_path / FILE).write_text((tmp_path / FILE).read_text().replace("ddprof.tune/1", "ddprof.tune/9"))
    with pytest.raises(NoUsableInput, match=r"wanted 'ddprof\.tune/1'"):
        read_document(tmp_path)
