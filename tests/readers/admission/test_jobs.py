"""Files are one job where they show it: by what they state, by their collectives, or by numbered names of one time."""

from dataclasses import replace

import pytest

from ddprof.model import Identity
from ddprof.readers.admission.jobs import Recording, admission_notes, split_jobs

SECOND = 10**9
WORLD = frozenset({(0, 1, 2, 3)})


def stated(rank: int, world: int = 4, at_s: float = 0.0, **more: object) -> Recording:
    """A file whose distributedInfo states its rank, recorded for a second from `at_s` on."""
    identity = Identity(rank, "distributedInfo", world, host="a")
    return replace(silent(f"t{rank}.json", at_s), identity=identity, **more)


def silent(path: str, at_s: float = 0.0, **more: object) -> Recording:
    window = (round(at_s * SECOND), round((at_s + 1) * SECOND))
    return replace(Recording(Identity(None, "order"), path, window_ns=window), **more)


SMALL, LARGE = ({("0,1", seq): ("all_reduce", size) for seq in range(4)} for size in (100, 900))


def pair(names: str, apart_s: float, communications: int = 3) -> list[Recording]:
    """Two silent files that communicate."""
    return [silent(name, at * apart_s, communications=communications) for at, name in enumerate(names.split())]


def in_group(*communications: int) -> list[Recording]:
    """Silent files that have one process group, and how often each used it."""
    return [silent(f"{at}x.json", communications=used, group_ranks=WORLD) for at, used in enumerate(communications)]


SAME_CALLS = [silent("x.json", numbered=SMALL), silent("y.json", at_s=9, numbered=SMALL)]


@pytest.mark.parametrize(
    ("recordings", "jobs"),
    [
        pytest.param([stated(r) for r in range(4)], [[0, 1, 2, 3]], id="ranks of one world"),
        pytest.param([silent("trace.json"), silent("trace1.json")], [[0], [1]], id="a number alone"),
        pytest.param([silent("trace0.json"), silent("trace1.json")], [[0], [1]], id="numbers, but neither has a peer"),
        pytest.param(pair("rank0.json rank1.json", 0.5), [[0, 1]], id="numbers of one time that communicate"),
        pytest.param(pair("rank0.json rank1.json", 5.0), [[0], [1]], id="numbers of two times"),
        pytest.param(pair("rank0.json amp_rank1.json", 0.5), [[0], [1]], id="numbers behind other names"),
        pytest.param(in_group(1, 1), [[0, 1]], id="a process group in common at one time"),
        pytest.param(in_group(1, 0), [[0], [1]], id="a group that one does not use"),
        pytest.param(SAME_CALLS, [[0, 1]], id="the same collectives, whatever their clocks say"),
        pytest.param([stated(0, numbered=SMALL), stated(1, numbered=LARGE)], [[0], [1]], id="other collectives"),
        pytest.param([stated(r, at_s=at) for at in (0, 60) for r in (0, 1)], [[0, 1], [2, 3]], id="two recordings"),
        pytest.param([stated(0), stated(1, at_s=3600.0), stated(2)], [[0, 1, 2]], id="a clock that is an hour off"),
    ],
)
def test_files_are_one_job_where_they_show_it(recordings: list[Recording], jobs: list[list[int]]) -> None:
    assert split_jobs(recordings) == jobs


def test_other_world_sizes_and_silent_files_are_jobs_of_their_own_and_thousands_are_one() -> None:
    recordings = [stated(0), stated(0, 8), stated(1), stated(1, 8)]
    assert split_jobs(recordings) == [[0, 2], [1, 3]]
    (note,) = admission_notes(split_jobs(recordings), recordings)
    assert "different world sizes (4, 8)" in note.issue and "separate runs" in note.effect
    recordings = [silent("amp.json"), silent("fp32.json", at_s=2)]
    assert split_jobs(recordings) == [[0], [1]]
    (note,) = admission_notes(split_jobs(recordings), recordings)
    assert "different times" in note.issue and "ddprof compare" in note.effect
    assert split_jobs([stated(r, 4096) for r in range(4096)]) == [list(range(4096))]


def test_files_of_other_calls_or_of_groups_that_only_one_used_are_apart() -> None:
    first = stated(0, communications=9, sequences={"0,1,2,3": (10, 20)})
    # The last: windows of one job that opened at different times.
    for numbers, at_s, jobs in (((15, 25), 0.2, 1), ((21, 31), 0.2, 2), ((21, 31), 0.8, 1)):
        second = stated(1, at_s=at_s, communications=9, sequences={"0,1,2,3": numbers})
        assert len(split_jobs([first, second])) == jobs
    both, neither = ({(0, 1), (0, 2)}, {(0, 1), (1, 3)}), ({(0, 2)}, {(1, 3)})  # no group holds both
    for groups, jobs in ((both, 1), (neither, 1), (({(0, 1), (0, 2)}, {(0, 1, 2, 3)}), 2)):
        used = [stated(r, communications=9, group_ranks=frozenset(own)) for r, own in enumerate(groups)]
        assert len(split_jobs(used)) == jobs
