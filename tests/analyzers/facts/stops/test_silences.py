"""Silences of a host: no call is open, and nothing begins or ends."""

from __future__ import annotations

from pathlib import Path

from kineto_run import Script


def lengths(script: Script, folder: Path) -> list[float]:
    """Lengths of the silences, us."""
    silences = script.facts(folder).silences
    return [float(length) / 1e3 for length in silences["end_ns"] - silences["start_ns"]]


def stepping(between_us: float = 20.0) -> Script:
    """Three steps of a few launches, without the fourth step's mark; the host idles after each."""
    script = Script()
    for _ in script.steps(3):
        for _ in range(5):
            script.launch()
            script.idle(20.0)
        script.idle(between_us)
    return script


def test_a_stretch_without_events_is_silent(tmp_path: Path) -> None:
    assert lengths(stepping(5_000.0), tmp_path) == [5_020.0] * 3


def test_python_between_two_calls_is_not(tmp_path: Path) -> None:
    assert lengths(stepping(), tmp_path) == []


def test_a_call_that_is_open_is_what_the_host_does(tmp_path: Path) -> None:
    script = stepping()
    script.host("aten::mm", 3_000.0)
    script.synchronise(least_us=2_000.0)
    script.launch()
    script.step(4, script.now_us - 5_100)
    assert lengths(script, tmp_path) == []


def test_a_range_around_it_says_nothing(tmp_path: Path) -> None:
    script = stepping()
    begin = script.now_us
    script.idle(3_000.0)
    script.add("epoch", "user_annotation", begin, 3_000.0, 1, {})
    script.launch()
    script.step(4, begin)
    assert lengths(script, tmp_path) == [3_000.0]


def test_fetching_and_saving_are_named(tmp_path: Path) -> None:
    script = stepping()
    begin = script.now_us
    script.host("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 4_000.0, "user_annotation")
    script.host("save_checkpoint", 4_000.0, "user_annotation")
    script.launch()
    script.step(4, begin)
    assert lengths(script, tmp_path) == []
