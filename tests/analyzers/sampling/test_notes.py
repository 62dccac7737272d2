"""Notes of a report on a sample, and the rank to read next."""

from pathlib import Path

from labelled_runs import drawn

from benchmarks.oracle.small_runs import fault, small_run
from benchmarks.oracle.spec import Model, Parallel
from ddprof.analyzers.engine import Options, analyze
from ddprof.report.model import Report

SLOW = 13
MODEL = Model(layers=2, unit_us=390.0, params_per_layer=10_000_000)


def traces(folder: Path, slow: int | None) -> Path:
    """32 ranks on four hosts, tensor parallel by four; one of them with slow kernels, or none."""
    faults = [] if slow is None else [fault("straggler.compute", 0.3, slow, mode="all")]
    parallel = Parallel("tpdp", dp=8, tp=4)
    wide = small_run(*faults, ranks=32, hosts=4, parallel=parallel, model=MODEL, loader_us=20_000.0)
    return drawn(wide, folder).traces


def told(path: Path, ranks: str) -> tuple[Report, dict[str, str]]:
    (report,) = analyze([path], Options(cache=False, ranks=ranks))
    return report, {note.issue: note.effect for note in report.health if note.severity == "info"}


def test_the_slow_rank_that_was_not_read_is_the_one_to_read_next_and_then_found(tmp_path: Path) -> None:
    with_slow_rank = traces(tmp_path, SLOW)
    report, notes = told(with_slow_rank, "sample:12")
    assert SLOW not in report.run.ranks
    assert not [f for f in report.findings if f.ranks]  # nobody is blamed for a rank that was not read
    (following,) = [issue for issue in notes if issue.startswith("read rank")]
    assert following.startswith(f"read rank {SLOW} next: collectives of its groups last ")
    assert notes[following] == f"--ranks sample:13,{SLOW}"
    again, _ = told(with_slow_rank, f"sample:13,{SLOW}")
    assert again.findings[0].ranks == (SLOW,)


def test_a_sample_says_what_it_shows_what_it_cannot_and_what_to_read_next(tmp_path: Path) -> None:
    healthy = traces(tmp_path, None)
    report, notes = told(healthy, "sample:8")
    assert len(report.run.ranks) == 8
    shown = "8 of 32 ranks were read (--ranks sample:8), which show all 4 hosts, all 8 tensor-parallel groups"
    (note,) = [issue for issue in notes if issue.startswith(shown)]
    assert "charged to no rank" in notes[note]
    assert not [issue for issue in notes if issue.startswith("read rank")]
    _, notes = told(healthy, "0,1")
    assert notes["read rank 10 next: it shows a host of which no rank was read"] == "--ranks 0,1,10"
    _, notes = told(healthy, "sample:99")
    assert not [issue for issue in notes if "--ranks" in issue]
