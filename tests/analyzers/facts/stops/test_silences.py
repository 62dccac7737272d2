"""Silences of a host: no call is open, and nothing begins or ends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
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


def test_a_stretch_without_events_is_silent_and_python_between_two_calls_is_not(tmp_path: Path) -> None:
    assert lengths(stepping(5_000.0), tmp_path) == [5_020.0] * 3
    assert lengths(stepping(), tmp_path) == []


def open_call(script: Script) -> None:
    script.host("aten::mm", 3_000.0)
    script.synchronise(least_us=2_000.0)


def range_around(script: Script) -> None:
    script.host("epoch", 3_000.0, "user_annotation")


def fetch_and_save(script: Script) -> None:
    script.host("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 4_000.0, "user_annotation")
    script.host("save_checkpoint", 4_000.0, "user_annotation")


@pytest.mark.parametrize(("act", "silent_us"), [(open_call, []), (range_around, [3_000.0]), (fetch_and_save, [])])
def test_what_the_host_does_is_no_silence_and_a_mere_range_says_nothing(
    tmp_path: Path, act: Callable[[Script], None], silent_us: list[float]
) -> None:
    script = stepping()
    begin = script.now_us
    act(script)
    script.launch()
    script.step(4, begin)
    assert lengths(script, tmp_path) == silent_us
