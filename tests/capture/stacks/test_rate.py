"""The rate follows what sampling costs."""

import pytest

from ddprof.capture.stacks.rate import SampleRate

SECOND_NS = 10**9


def play(rate: SampleRate, each_ns: int, booking_ns: int, seconds: int) -> None:
    """A machine on which each sample takes so long."""
    due = 0.0
    for _ in range(seconds):
        due += SECOND_NS / rate.period_ns
        samples, due = int(due), due % 1
        rate.measured(samples, samples * each_ns, booking_ns, SECOND_NS)


def test_a_cheap_sample_is_taken_as_often_as_wanted_and_a_dear_start_saved_later() -> None:
    rate = SampleRate(10, 0.001, 5e9)
    play(rate, 30_000, 100_000, 60)
    assert rate.period_ns == SECOND_NS // 10
    assert rate.cost_share is not None and rate.cost_share == pytest.approx(0.0004, rel=0.1)
    rate = SampleRate(10, 0.001, 5e9)
    rate.measured(5, 50_000_000, 0, 5 * SECOND_NS)
    assert rate.period_ns == SECOND_NS * 5  # the slowest: a rank that hangs is seen all the same
    play(rate, 50_000, 50_000, 120)
    assert rate.cost_share is not None and rate.cost_share <= 0.001 and rate.period_ns <= SECOND_NS // 5


@pytest.mark.parametrize("each_us", [200, 1_000, 20_000])
def test_a_dear_sample_is_taken_as_often_as_can_be_paid(each_us: int) -> None:
    rate = SampleRate(200, 0.01, 1e9)
    play(rate, each_us * 1_000, 200_000, 300)
    assert rate.cost_share is not None and rate.cost_share <= 0.011
    assert rate.samples >= 0.5 * 0.0098 * 300 * 1e6 / each_us


def test_what_samples_cost_before_is_known_in_windows_and_one_disturbance_forgotten() -> None:
    rate, window = SampleRate(10, 0.001, 5e9), SampleRate(200, 0.01, 1e9)
    play(rate, 1_000_000, 0, 60)
    window.expect(rate)
    assert window.period_ns > SECOND_NS // 20
    rate = SampleRate(10, 0.001, 5e9)
    for taking_ns in (80_000, 2_400_000, 90_000):
        rate.measured(1, taking_ns, 0, SECOND_NS // 5)
    assert rate.period_ns <= SECOND_NS // 5
