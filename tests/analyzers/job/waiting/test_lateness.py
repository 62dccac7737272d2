"""Who is late again and again: a wait that occurs once does not say it, however long."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ddprof.analyzers.engine import Options, load_runs
from ddprof.analyzers.job.waiting.lateness import chance_of_most, latest_rank, recurring


def test_chance_of_being_last_in_most() -> None:
    assert chance_of_most(8, 8, 4) == pytest.approx(4 * 0.25**8)
    assert chance_of_most(1, 8, 4) == 1.0


def test_a_startup_broadcast_names_nobody(shared_dir: Path) -> None:
    """Rank 0 is last in the first broadcast, for 32 s; rank 9 in 36 of 54 all-reduces."""
    (run,) = load_runs([shared_dir / "wild" / "recordings" / "horovod_late_rank_24"], Options(workers=1, cache=False))
    found = latest_rank(run.job, ("unknown",))
    assert found is not None and (run.job.rank_ids[found.position], found.last) == (9, 36)
    assert found.waits == 54 and found.once_ns == 0  # the broadcasts are in no step
    once = run.job.blame["instance"] == run.job.blame["instance"][0]
    long = np.where(once, 10**12, run.job.blame["dur_ns"])
    job = replace(run.job, blame=run.job.blame.replace(dur_ns=long))
    assert (recurring(job) == ~once).all()  # nor is one in a step that is longer than all others together
