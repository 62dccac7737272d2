"""CPU ranks that share cores: how far communication takes cores from computing."""

from dataclasses import replace
from pathlib import Path

import pytest
from overlapped import overlapped

from ddprof.analyzers.execution.choose import CPU
from ddprof.analyzers.job.oversubscription import oversubscription_note
from ddprof.sidecar import Processors, Sidecar


@pytest.mark.parametrize(
    ("ranks", "cores", "expected"), [(2, 2, 1.0), (2, 3, 1 / 3), (2, 4, 0.0), (4, 2, 1.0), (1, 64, 0.0), (None, 2, 0.0)]
)
def test_a_communicating_rank_wants_two_cores(tmp_path: Path, ranks: int | None, cores: int, expected: float) -> None:
    known = Sidecar(processors=Processors(usable=cores, local_ranks=ranks))
    facts = [replace(f, sidecar=known) for f in overlapped(tmp_path).job.ranks]
    assert CPU.interference(facts) == pytest.approx(expected)
    assert bool(oversubscription_note(facts)) == (ranks is not None and ranks > cores)
