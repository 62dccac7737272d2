"""The ring of the last steps, read while its writer lives."""

import struct
from pathlib import Path

import pytest
from damage import step

from ddprof.capture.files.ring import StepRing, read_ring


def test_ring_keeps_the_last_steps(tmp_path: Path) -> None:
    ring = StepRing(tmp_path / "a.ring", {"rank": 3, "host": "h"}, capacity=4)
    for number in range(6):
        ring.write(step(number, profiled=number == 5))
    content = read_ring(tmp_path / "a.ring")  # while the writer is alive
    ring.close()
    assert (content.rank, content.host, content.started_ns, content.damaged) == (3, "h", None, 0)
    assert content.written == 6 and list(content.steps) == [step(2), step(3), step(4), step(5, profiled=True)]


@pytest.mark.parametrize("damage", [b"", b"nonsense" * 600, b"DDPROFR2"])
def test_ring_that_is_none_is_refused(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "a.ring"
    path.write_bytes(damage)
    with pytest.raises(ValueError, match=r"a\.ring"):
        read_ring(path)


RANKS = ("null", '"1"', "true", "NaN", "1e3", "-1", "18446744073709551616")
IDENTITIES = (
    *("{}", "[]", "nonsense", '{"rank": 0}', "[" * 3000, '{"a":' * 700),
    *(f'{{"rank": {rank}, "host": "h"}}' for rank in RANKS),
    *(f'{{"rank": 0, "host": "{host}"}}' for host in ("\\u001b[31m", "\\ud800")),
)
NOBODYS = [(64, struct.pack("<q", len(text)) + text.encode()) for text in IDENTITIES]
WRONG = [(offset, struct.pack("<q", value)) for offset in (8, 64) for value in (-1, 0, 1 << 62)]


@pytest.mark.parametrize(("offset", "written"), NOBODYS + WRONG)
def test_ring_that_does_not_say_whose_it_is_or_counts_wrong(tmp_path: Path, offset: int, written: bytes) -> None:
    path = tmp_path / "a.ring"
    StepRing(path, {"rank": 0, "host": "h"}).close()
    with path.open("r+b") as stream:
        stream.seek(offset)
        stream.write(written)
    with pytest.raises(ValueError, match=r"^a\.ring"):
        read_ring(path)


def test_records_that_no_step_wrote_are_counted_and_a_ring_is_not_made_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    (tmp_path / "a.ring").symlink_to(tmp_path / "mine")
    StepRing(tmp_path / "a.ring", {"rank": 0, "host": "h"}).close()
    assert (tmp_path / "mine").read_text() == "precious" and (tmp_path / "a.ring").stat().st_mode & 0o022 == 0
    assert read_ring(tmp_path / "a.ring").rank == 0
    ring = StepRing(tmp_path / "a.ring", {"rank": 0, "host": "h", "started_ns": "soon"}, capacity=8)
    good = [step(0), step(1)._replace(end_ns=90)]  # the clock was set back by 10 ns
    odd = {"number": -1, "end_ns": -5, "data_ns": 1 << 60, "start_ns": -1, "profiled": 7}
    for each in [*good, *(step(2)._replace(**{name: value}) for name, value in odd.items())]:
        ring.write(each)
    content = read_ring(tmp_path / "a.ring")
    assert (list(content.steps), content.damaged, content.started_ns) == (good, 5, None)
