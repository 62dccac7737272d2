"""Facts of all ranks make one job, in whatever order the ranks come."""

from dataclasses import replace

from labelled_runs import Runs

from ddprof.analyzers.job.assemble import job_facts
from ddprof.model import HealthNote
from ddprof.sidecar import Sidecar, TracedWindow


def test_ranks_in_any_order_give_the_same_job_and_keep_what_their_reader_noted(labelled: Runs) -> None:
    job = labelled("clean.tpdp").job
    turned = job_facts(job.ranks[::-1])
    assert turned.rank_ids == job.rank_ids
    assert turned.step_ns == job.step_ns
    assert turned.ledger["dur_ns"].tolist() == job.ledger["dur_ns"].tolist()
    job = labelled("clean.ddp").job
    note = HealthNote("rank1.json: the file ends early", "later events are missing")
    cut = replace(job.ranks[1], counts={**job.ranks[1].counts, "whole": 0}, health=(note,))
    found = job_facts([job.ranks[0], cut, *job.ranks[2:]])
    assert found.rank_ids == tuple(r for r in job.rank_ids if r != job.rank_ids[1])
    assert [n.rank for n in found.health if n.issue == note.issue] == [job.rank_ids[1]]
    assert not [n.issue for n in found.health if "not traced" in n.issue]  # its file was read


def test_what_windows_left_out_is_said(labelled: Runs) -> None:
    job = labelled("clean.ddp").job
    windows = (TracedWindow(), TracedWindow(left_out=("stacks",)), TracedWindow(left_out=("stacks", "shapes")))
    found = job_facts([replace(facts, sidecar=Sidecar(windows=windows)) for facts in job.ranks])
    assert "2 of 3 trace windows were recorded without stacks and shapes" in [note.issue for note in found.health]
