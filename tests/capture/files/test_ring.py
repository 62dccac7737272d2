"""The ring of the last steps, read while its writer lives."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddprof.capture.files.ring import StepRing, read_ring
from ddprof.capture.files.step import Step


def step(number: int, dur_ns: int = 10, profiled: bool = False) -> Step:
    return Step(number, number * 100, number * 100 + dur_ns, 1, 2, 3, 4, 5, profiled)


def test_ring_keeps_the_last_steps(tmp_path: Path) -> None:
    ring = StepRing(tmp_path / "a.ring", {"rank": 3}, capacity=4)
    for number in range(6):
        ring.write(step(number, profiled=number == 5))
    content = read_ring(tmp_path / "a.ring")  # while the writer is alive
    ring.close()
    assert content.identity == {"rank": 3}
    assert content.written == 6
    assert list(content.steps) == [step(2), step(3), step(4), step(5, profiled=True)]


@pytest.mark.parametrize("damage", [b"", b"nonsense" * 600, b"DDPROFR2"])
def test_ring_that_is_none_is_refused(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "a.ring"
    path.write_bytes(damage)
    with pytest.raises(ValueError, match=r"a\.ring"):
        read_ring(path)
