"""Stops of the host inside calls that usually return at once, told from its program and from a full queue."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from kineto_run import Script

STEPS, CALLS = 4, 20
RANGE_AROUND = partial(Script.host, name="epoch", dur_us=3_000.0, cat="user_annotation")


def run(stops: dict[tuple[int, int], float], views_us: float = 3.0, kernel_us: float = 5.0) -> Script:
    """Steps of CALLS operators and views; `stops`: (step, call) of views that take longer, in us."""
    script = Script()
    for step in script.steps(STEPS):
        for call in range(CALLS):
            script.launch(dur_us=kernel_us)
            script.host("aten::view", stops.get((step, call), views_us))
    return script


def test_a_call_that_takes_far_longer_than_usual_is_a_stall_and_drains_an_idle_device(tmp_path: Path) -> None:
    facts = run({(1, 3): 8_000.0, (2, 15): 900.0}).facts(tmp_path)
    stalls = facts.stalls
    assert [facts.strings[name] for name in stalls["name"]] == ["aten::view"] * 2
    assert (stalls["end_ns"] - stalls["start_ns"]).tolist() == [8_000_000, 900_000]
    assert stalls["usual_ns"].tolist() == [3_000, 3_000] and stalls["drains"].all()
    assert run({(1, 3): 2_000.0}, kernel_us=500.0).facts(tmp_path).stalls["drains"].tolist() == [False]


def program() -> Script:
    """A program with one long call in every step."""
    script = Script()
    for _ in script.steps(STEPS):
        script.launch(times=CALLS)
        script.host("my_tokenizer", 6_000.0, "user_annotation")
    return script


def and_launches(script: Script, **calls_us: float) -> Script:
    """One more step, of launches of these kernels whose calls take so long."""
    begin = script.now_us
    for kernel, call_us in calls_us.items():
        script.launch(kernel, call_us=call_us)
    script.step(STEPS + 1, begin)
    return script


FIRST_LAUNCH = and_launches(run({}), of_another_module=5_000.0, kernel=4.0)  # it loads its module
FULL_QUEUE = and_launches(run({}, kernel_us=500.0), kernel=3_000.0)  # it waits for room in the queue


def without_operators() -> Script:
    """Python between launches, which has no usual time."""
    script = Script()
    for step in script.steps(STEPS):
        for call in range(CALLS):
            script.launches += 1
            script.host("cudaLaunchKernel", 4.0, "cuda_runtime", correlation=script.launches)
            script.idle(5_000.0 if call == 7 and step % 2 else 10.0)
        script.launch()
    return script


@pytest.mark.parametrize(
    "script",
    [program(), run({}), run({}, views_us=400.0), FIRST_LAUNCH, FULL_QUEUE, without_operators()],
    ids=["program", "short calls", "calls of equal length", "first launch", "full queue", "without operators"],
)
def test_what_is_no_stall(tmp_path: Path, script: Script) -> None:
    assert len(script.facts(tmp_path).stalls) == 0


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
    assert lengths(stepping(5_000.0), tmp_path) == [5_020.0] * 3 and lengths(stepping(), tmp_path) == []


def open_call(script: Script) -> None:
    script.host("aten::mm", 3_000.0)
    script.synchronise(least_us=2_000.0)


def fetch_and_save(script: Script) -> None:
    script.host("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 4_000.0, "user_annotation")
    script.host("save_checkpoint", 4_000.0, "user_annotation")


@pytest.mark.parametrize(("act", "silent_us"), [(open_call, []), (RANGE_AROUND, [3_000.0]), (fetch_and_save, [])])
def test_what_hosts_do_is_no_silence(tmp_path: Path, act: Callable[[Script], None], silent_us: list[float]) -> None:
    script = stepping()
    begin = script.now_us
    act(script)
    script.launch()
    script.step(4, begin)
    assert lengths(script, tmp_path) == silent_us
