"""The generator's rules for the ledger, applied to the hand-labelled samples, give the samples' own ledgers."""

from pathlib import Path

import pytest
import traces

from benchmarks.oracle.ledger import CAUSES, booked, per_step
from ddprof.causes import CAUSE_IDS

SAMPLES = 10
WAITS = ("comm_wait", "pipeline_bubble")


def test_the_oracle_keeps_its_own_list_of_causes_in_the_same_order() -> None:
    """It imports nothing of ddprof, so that a mistake cannot cancel itself out."""
    assert CAUSES == CAUSE_IDS


def test_every_sample_ledger_is_reproduced(shared_dir: Path) -> None:
    """Per rank and cause within 0.1 % of the wall (waiting and bubble are one pool: they differ by a budget only)."""
    folders = sorted(path.parent for path in (shared_dir / "oracle_samples").glob("*/label.json"))
    assert len(folders) == SAMPLES
    for folder in folders:
        label, events = traces.load(folder)
        for rank in traces.ranks_from(label, events):
            truth = label["ledger"]["per_rank"][str(rank.rank)]
            table = per_step(rank, booked(rank))
            for causes in (WAITS, *((cause,) for cause in CAUSES if cause not in WAITS)):
                mean, told = sum(row[c] for row in table for c in causes) / len(table), sum(truth[c] for c in causes)
                assert mean == pytest.approx(told, abs=1e-3 * truth["wall_us"]), (folder.name, rank.rank, causes)
