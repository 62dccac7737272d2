"""Samples of ranks, from jobs of any layout and from files that state little; notes of a report on one."""

from pathlib import Path
from typing import Any

import pytest
from labelled_runs import drawn

from benchmarks.oracle.small_runs import fault, small_run
from benchmarks.oracle.spec import Fault, Model, Parallel
from ddprof.analyzers import sampling
from ddprof.analyzers.engine import Options, analyze
from ddprof.analyzers.sampling import HOST, STAGE, TENSOR_GROUP, counts, greedy, parse_ranks, sample, spread
from ddprof.errors import NoUsableInput, UsageError
from ddprof.model import ProcessGroup
from ddprof.readers import Source, discover
from ddprof.readers.admission.stated import Stated
from ddprof.report.model import Report

STAGES, WORLD, SLOW = 4, 64, 13


def mesh(inner: str) -> list[sampling.Traits]:
    """64 ranks, 8 to a host, four stages of four replicas of four: stages outermost, as in Megatron, or innermost."""
    shown = []
    for rank in range(WORLD):
        near, far = range(rank // 4 * 4, rank // 4 * 4 + 4), range(rank % 16, WORLD, 16)
        members = {
            "default_pg": range(WORLD),
            "TENSOR_MODEL_PARALLEL_GROUP": near if inner == "tensor" else far,
            "PIPELINE_MODEL_PARALLEL_GROUP": far if inner == "tensor" else near,
            "DATA_PARALLEL_GROUP": range(rank // 16 * 16 + rank % 4, rank // 16 * 16 + 16, 4),
        }
        groups = tuple(ProcessGroup(str(n), of, tuple(m), len(m)) for n, (of, m) in enumerate(members.items()))
        stated = Stated(Source(f"rank{rank}.json", "kineto"), rank, f"node{rank // 8}", groups)
        shown.append(sampling.traits_of(stated, WORLD))
    return shown


@pytest.mark.parametrize("inner", ["tensor", "pipeline"])
@pytest.mark.parametrize(("count", "hosts", "tensor_groups"), [(4, 4, 4), (8, 8, 8), (16, 8, 16), (20, 8, 16)])
def test_stages_come_first_then_hosts(inner: str, count: int, hosts: int, tensor_groups: int) -> None:
    shown = mesh(inner)
    chosen = greedy(shown, [], count)
    seen = counts([shown[at] for at in chosen])
    assert len(set(chosen)) == count and counts(shown)[STAGE] == STAGES
    assert (seen[STAGE], seen[HOST]) == (STAGES, hosts) and seen[TENSOR_GROUP] >= tensor_groups * 3 // 4


def test_named_ranks_are_in_the_sample_and_unreadable_files_are_chosen_by_name(tmp_path: Path) -> None:
    chosen = greedy(mesh("tensor"), [13, 14], 6)
    assert len(chosen) == 6 and {13, 14} <= set(chosen)
    sources = [Source(str(tmp_path / f"rank{rank}.host{rank // 2}.7.0.0.pt.trace.json"), "kineto") for rank in range(8)]
    assert counts(sample(sources, parse_ranks("sample:4")).read) == {HOST: 4}


@pytest.mark.parametrize("total", [7, 8, 64, 96, 1000, 4096])
def test_ranks_of_which_nothing_is_known_show_every_block_that_has_its_share(total: int) -> None:
    for block in (size for size in range(1, total + 1) if total % size == 0 and total // size <= 128):
        shown = {position // block for position in spread(total, total // block)}
        assert shown == set(range(total // block)) or total // block == 1
    assert spread(total, 0) == [] and spread(total, 1) == [0]


def traces(folder: Path, *faults: Fault, layers: int, **layout: Any) -> Path:
    model = Model(layers=layers, unit_us=390.0, params_per_layer=10_000_000)
    return drawn(small_run(*faults, model=model, loader_us=20_000.0, **layout), folder).traces


@pytest.fixture(scope="module")
def pipeline_traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    parallel = Parallel("pp", dp=2, pp=4, microbatches=4)
    return traces(tmp_path_factory.mktemp("pipeline"), ranks=8, hosts=2, parallel=parallel, layers=1)


def test_stages_and_hosts_are_read_off_headers_unless_ranks_are_listed(pipeline_traces: Path) -> None:
    sources = discover([pipeline_traces]).sources
    four, listed = (sample(sources, parse_ranks(text)) for text in ("sample:4", "1,6,99"))
    assert counts(four.read)[STAGE] == 4 and counts(four.read)[HOST] == 2
    assert len(four.sources) == 4 and len(four.unread) == 4
    assert [s for s in sources if s in four.sources] == list(four.sources)  # in the order of the files
    assert sorted(rank for rank, _ in listed.unread if rank is not None) == [0, 2, 3, 4, 5, 7]
    assert sample(sources, parse_ranks("sample:8")).sources == sources
    assert parse_ranks("all").is_all and sample(sources, parse_ranks("all")).unread == ()
    with pytest.raises(NoUsableInput, match="none of these ranks has a trace"):
        sample(sources, parse_ranks("99"))


@pytest.mark.parametrize(
    ("text", "named", "count", "one_more"),
    [
        *(("0,7", (0, 7), None, "0,7,9"), ("7,7", (7,), None, "7,9")),
        *(("sample:32", (), 32, "sample:33,9"), ("sample:32,7", (7,), 32, "sample:33,7,9")),
    ],
)
def test_ranks(text: str, named: tuple[int, ...], count: int | None, one_more: str) -> None:
    wanted = parse_ranks(text)
    assert (wanted.named, wanted.count, wanted.is_all) == (named, count, False) and wanted.and_rank(9) == one_more


@pytest.mark.parametrize("text", ["", "some", "1,x", "sample:", "sample:0", "sample:2,sample:3", "-1", "0,,7"])
def test_what_cannot_be_read(text: str) -> None:
    with pytest.raises(UsageError, match="want all, a list like 0,7, sample:32, or sample:32,7"):
        parse_ranks(text)


def wide(folder: Path, *faults: Fault) -> Path:
    """32 ranks on four hosts, tensor parallel by four."""
    return traces(folder, *faults, ranks=32, hosts=4, parallel=Parallel("tpdp", dp=8, tp=4), layers=2)


def told(path: Path, ranks: str) -> tuple[Report, dict[str, str]]:
    (report,) = analyze([path], Options(cache=False, ranks=ranks))
    return report, {note.issue: note.effect for note in report.health if note.severity == "info"}


def test_the_slow_rank_that_was_not_read_is_the_one_to_read_next_and_then_found(tmp_path: Path) -> None:
    with_slow_rank = wide(tmp_path, fault("straggler.compute", 0.3, SLOW, mode="all"))
    report, notes = told(with_slow_rank, "sample:12")
    assert SLOW not in report.run.ranks
    assert not any(f.ranks for f in report.findings)  # nobody is blamed for a rank that was not read
    (following,) = [issue for issue in notes if issue.startswith("read rank")]
    assert following.startswith(f"read rank {SLOW} next: collectives of its groups last ")
    assert notes[following] == f"--ranks sample:13,{SLOW}"
    again, _ = told(with_slow_rank, f"sample:13,{SLOW}")
    assert again.findings[0].ranks == (SLOW,)


def test_a_sample_says_what_it_shows_what_it_cannot_and_what_to_read_next(tmp_path: Path) -> None:
    healthy = wide(tmp_path)
    report, notes = told(healthy, "sample:8")
    assert len(report.run.ranks) == 8
    shown = "8 of 32 ranks were read (--ranks sample:8), which show all 4 hosts, all 8 tensor-parallel groups"
    (note,) = [issue for issue in notes if issue.startswith(shown)]
    assert "charged to no rank" in notes[note] and not [issue for issue in notes if issue.startswith("read rank")]
    _, notes = told(healthy, "0,1")
    assert notes["read rank 10 next: it shows a host of which no rank was read"] == "--ranks 0,1,10"
    _, notes = told(healthy, "sample:99")
    assert not [issue for issue in notes if "--ranks" in issue]
