"""Settings of the whole process, as they are once the job has run."""

from __future__ import annotations

import os

import pytest

from ddprof.capture.applying.process import in_order, share

torch = pytest.importorskip("torch")
from ddprof.capture.applying.outcomes import Outcomes  # noqa: E402
from ddprof.capture.applying.process import ProcessSettings  # noqa: E402
from ddprof.settings.wanted import parse_set  # noqa: E402

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


@pytest.mark.parametrize(
    ("cores", "ranks", "expected"),
    [
        (range(8), 2, [[0, 1, 2, 3], [4, 5, 6, 7]]),
        (range(5), 2, [[0, 1], [2, 3, 4]]),
        (range(2), 2, [[0], [1]]),
        (range(2), 4, [[], [], [], []]),
    ],
)
def test_every_core_has_one_rank_at_most(cores: range, ranks: int, expected: list[list[int]]) -> None:
    assert [list(share(list(cores), rank, ranks)) for rank in range(ranks)] == expected


def test_usable_cores_are_kept_and_a_rank_too_many_gets_none() -> None:
    usable = os.sched_getaffinity(0)
    assert set(in_order(usable)) == usable
    assert share([0, 1, 2, 3], 2, 2) == ()
