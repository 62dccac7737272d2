"""Settings of the whole process, as they are once the job has run."""

import gc
import os
from collections.abc import Iterator

import pytest

from ddprof.capture.applying.outcomes import Outcomes
from ddprof.capture.applying.process import CollectionSchedule, ProcessSettings, in_order, share
from ddprof.settings.wanted import parse_set

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
STATED = {"NCCL_PROTO": "LL", "expandable_segments": "true"}


def _whys() -> dict[str, str]:
    outcomes = Outcomes([parse_set(f"{name}={value}") for name, value in STATED.items()])
    settings = ProcessSettings(None, outcomes)  # type: ignore[arg-type]
    return {row["setting"]: row["why"] for row in settings.recorded()["applied"] if row["applied"] is not True}


def test_a_variable_that_reached_a_process_without_its_device_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_PROTO", "LL")
    monkeypatch.delenv("PYTORCH_ALLOC_CONF", raising=False)
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    for owner in (torch.cuda, torch.accelerator):
        monkeypatch.setattr(owner, "is_available", lambda: False)
    assert "no CUDA device" in _whys()["NCCL_PROTO"] and "no accelerator" in _whys()["expandable_segments"]
    for owner in (torch.cuda, torch.accelerator):
        monkeypatch.setattr(owner, "is_available", lambda: True)
    assert _whys() == {}
    monkeypatch.setenv("NCCL_PROTO", "Simple")
    assert "NCCL_PROTO is Simple in this process" in _whys()["NCCL_PROTO"]


@pytest.mark.parametrize("shares", [["0123", "4567"], ["01", "234"], ["0", "1"], [""] * 4])
def test_every_core_has_one_rank_at_most(shares: list[str]) -> None:
    """`shares`: the numbers of each rank's cores; four ranks have none of two."""
    cores = list(range(len("".join(shares)) or 2))
    found = [share(cores, rank, len(shares)) for rank in range(len(shares) + 1)]
    assert ["".join(map(str, its)) for its in found] == [*shares, ""]  # a rank too many
    usable = os.sched_getaffinity(0)
    assert set(in_order(usable)) == usable


@pytest.fixture
def schedule() -> Iterator[CollectionSchedule]:
    """Every third step; as before afterwards."""
    made = CollectionSchedule(3)
    made.install()
    yield made
    made.uninstall()
    gc.enable()
    gc.unfreeze()


def _steps(count: int) -> list[int]:
    """The steps of an optimizer in which all generations were collected, counted from 1."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    collected: list[int] = []
    number = 0

    def saw(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            collected.append(number)

    gc.callbacks.append(saw)
    try:
        for number in range(1, count + 1):  # noqa: B007 - `saw` reads it
            optimizer.step()
    finally:
        gc.callbacks.remove(saw)
    return collected


def test_all_is_collected_at_the_interval_and_at_no_other_time(schedule: CollectionSchedule) -> None:
    assert schedule.why_not() == "no optimizer has stepped in this process" and _steps(10) == [1, 3, 6, 9]
    assert not gc.isenabled() and schedule.why_not() == ""
    gc.enable()
    assert schedule.why_not() == "the script has switched garbage collection on again"


def test_a_script_that_collects_by_itself_is_left_alone(schedule: CollectionSchedule) -> None:
    gc.disable()
    assert _steps(7) == [] and schedule.why_not() == "the script has switched garbage collection off itself"


def test_forked_children_collect_as_python_does(schedule: CollectionSchedule) -> None:
    _steps(1)
    child = os.fork()
    if not child:
        os._exit(0 if gc.isenabled() else 1)
    assert os.waitpid(child, 0)[1] == 0 and not gc.isenabled()
