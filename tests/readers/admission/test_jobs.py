"""Files are one job where they show it: by what they state, by their collectives, or by numbered names of one time."""

from __future__ import annotations

from dataclasses import replace

from ddprof.model import Identity
from ddprof.readers.admission.jobs import admission_notes, split_jobs
from ddprof.readers.admission.recording import Recording

SECOND = 10**9
WORLD = frozenset({(0, 1, 2, 3)})


def stated(rank: int, world: int = 4, at_s: float = 0.0, **more: object) -> Recording:
    """A file whose distributedInfo states its rank, recorded for a second from `at_s` on."""
    identity = Identity(rank, "distributedInfo", world, host="a")
    return replace(silent(f"t{rank}.json", at_s), identity=identity, **more)


def silent(path: str, at_s: float = 0.0, **more: object) -> Recording:
    """A file that states nothing."""
    window = (round(at_s * SECOND), round((at_s + 1) * SECOND))
    return replace(Recording(Identity(None, "order"), path, window_ns=window), **more)


def test_files_that_state_ranks_of_one_world_are_one_job() -> None:
    assert split_jobs([stated(r) for r in range(4)]) == [[0, 1, 2, 3]]


def test_other_world_sizes_are_other_jobs() -> None:
    recordings = [stated(0), stated(0, 8), stated(1), stated(1, 8)]
    assert split_jobs(recordings) == [[0, 2], [1, 3]]
    (note,) = admission_notes(split_jobs(recordings), recordings)
    assert "different world sizes (4, 8)" in note.issue and "each alone" in note.effect


def test_silent_files_are_runs_of_their_own() -> None:
    recordings = [silent("amp.json"), silent("fp32.json", at_s=2)]
    assert split_jobs(recordings) == [[0], [1]]
    (note,) = admission_notes(split_jobs(recordings), recordings)
    assert "different times" in note.issue and "ddprof compare" in note.effect


def test_a_number_in_a_name_alone_connects_nothing() -> None:
    assert split_jobs([silent("trace.json"), silent("trace1.json")]) == [[0], [1]]
    assert split_jobs([silent("trace0.json"), silent("trace1.json")]) == [[0], [1]]  # neither has a peer


def test_numbered_names_connect_files_of_one_time_that_communicate() -> None:
    def job(at_s: float) -> list[Recording]:
        names = ("rank0.json", "rank1.json")
        return [silent(n, at_s=i * at_s, communications=3) for i, n in enumerate(names)]

    assert split_jobs(job(0.5)) == [[0, 1]]
    assert split_jobs(job(5.0)) == [[0], [1]]
    other = [replace(r, path=p) for r, p in zip(job(0.5), ("rank0.json", "amp_rank1.json"), strict=True)]
    assert split_jobs(other) == [[0], [1]]


def test_a_process_group_in_common_connects_files_of_one_time() -> None:
    pair = [silent(n, communications=1, group_ranks=WORLD) for n in ("x.json", "y.json")]
    assert split_jobs(pair) == [[0, 1]]
    assert split_jobs([pair[0], replace(pair[1], communications=0)]) == [[0], [1]]


def test_collectives_decide_whether_files_with_one_number_are_one_job() -> None:
    small = {("0,1", seq): ("all_reduce", 100) for seq in range(4)}
    large = {("0,1", seq): ("all_reduce", 900) for seq in range(4)}
    same = [silent("x.json", numbered=small), silent("y.json", at_s=9, numbered=small)]
    assert split_jobs(same) == [[0, 1]]  # whatever their clocks say
    assert split_jobs([stated(0, numbered=small), stated(1, numbered=large)]) == [[0], [1]]


def test_two_recordings_of_one_job_are_two_runs() -> None:
    recordings = [stated(r, at_s=at) for at in (0.0, 60.0) for r in (0, 1)]
    assert split_jobs(recordings) == [[0, 1], [2, 3]]


def test_a_clock_that_is_an_hour_off_leaves_its_rank_in_the_job() -> None:
    assert split_jobs([stated(0), stated(1, at_s=3600.0), stated(2)]) == [[0, 1, 2]]


def test_thousands_of_ranks_are_put_together_without_comparing_all_pairs() -> None:
    assert split_jobs([stated(r, 4096) for r in range(4096)]) == [list(range(4096))]


def test_files_that_called_other_collectives_of_one_group_at_one_time_are_apart() -> None:
    def pair(sequences: tuple[int, int], at_s: float) -> list[Recording]:
        first = stated(0, communications=9, sequences={"0,1,2,3": (10, 20)})
        return [first, stated(1, at_s=at_s, communications=9, sequences={"0,1,2,3": sequences})]

    assert split_jobs(pair((15, 25), 0.2)) == [[0, 1]]
    assert split_jobs(pair((21, 31), 0.2)) == [[0], [1]]
    assert split_jobs(pair((21, 31), 0.8)) == [[0, 1]]  # windows of one job that opened at different times


def test_members_of_a_group_that_only_one_of_them_used_are_apart() -> None:
    def pair(one: set[tuple[int, ...]], other: set[tuple[int, ...]]) -> list[Recording]:
        groups = frozenset(one), frozenset(other)
        return [stated(r, communications=9, group_ranks=own) for r, own in enumerate(groups)]

    assert split_jobs(pair({(0, 1), (0, 2)}, {(0, 1), (1, 3)})) == [[0, 1]]
    assert split_jobs(pair({(0, 2)}, {(1, 3)})) == [[0, 1]]  # no group holds both
    assert split_jobs(pair({(0, 1), (0, 2)}, {(0, 1, 2, 3)})) == [[0], [1]]
