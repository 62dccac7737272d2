"""Verdicts: records that lack something, exceptions that are consequences, and who is said to wait for whom."""

import pytest

from ddprof.slices.hangs.evidence import Call, Ending, Group, RankEvidence, StackFrame
from ddprof.slices.hangs.judging.verdict import judge

GROUPS = {"0": Group("0", "default_pg", (0, 1))}
STOPPED = Ending("stopped", 100 * 10**9)
LOADER = StackFrame("/env/site-packages/torch/utils/data/dataloader.py", 1290, "_get_data")
STORE = StackFrame("/env/site-packages/torch/distributed/distributed_c10d.py", 5, "_store_based_barrier")
MINE = StackFrame("/home/me/train.py", 7, "main")
CLOSED = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [::1]:3"


def test_a_rank_whose_calls_have_no_times_is_not_judged_by_them() -> None:
    ranks = [
        RankEvidence(
            rank,
            calls=(Call("0", 1, "all_reduce", done=False, entered_ns=entered_ns),),
            groups=GROUPS, ending=STOPPED, seen_ns=STOPPED.at_ns, has_calls=True,
        )
        for rank, entered_ns in enumerate((None, 10**9))
    ]  # fmt: skip
    assert judge(ranks).kind == "inside"


def test_the_call_that_failed_is_the_last_one_where_none_has_a_time() -> None:
    calls = tuple(Call("0", number, "all_reduce", done=True) for number in (1, 2, 3))
    lost = Ending("error", 2, "RuntimeError", "[gloo] Connection closed by peer")
    ranks = [
        RankEvidence(0, calls=calls, groups=GROUPS, ending=lost, has_calls=True),
        RankEvidence(1, calls=calls[:2], groups=GROUPS, ending=Ending("finished", 1), has_calls=True),
    ]
    hang = judge(ranks, hang_seen=True)
    assert (hang.kind, hang.ranks, hang.stuck[0].number) == ("ended", (1,), 3), hang.sentence


def failed(rank: int, done: bool, error: str, message: str, *frames: StackFrame) -> RankEvidence:
    ending = Ending("error", (9 - rank) * 10**9, error, message, frames)
    calls = (Call("0", 1, "all_reduce", done, entered_ns=10**9),)
    return RankEvidence(rank, calls=calls, groups=GROUPS, frames=frames, ending=ending, has_calls=True)


@pytest.mark.parametrize(
    ("error", "message", "frames", "is_own"),
    [
        ("ConnectionResetError", "[Errno 104] Connection reset by peer", (MINE,), True),
        ("ReadTimeout", "HTTPSConnectionPool(host='store'): Read timed out.", (MINE,), True),
        ("RuntimeError", "DataLoader timed out after 5 seconds", (LOADER, MINE), True),
        ("RuntimeError", CLOSED, (MINE,), False),
        ("TrainingFailed", f"step 7: {CLOSED}", (MINE,), False),
    ],
)
def test_only_the_words_of_c10d_excuse_an_exception(
    error: str, message: str, frames: tuple[StackFrame, ...], is_own: bool
) -> None:
    ranks = [failed(0, False, "RuntimeError", CLOSED, MINE), failed(1, True, error, message, *frames)]
    hang = judge(ranks, hang_seen=True)
    assert (hang.kind == "error" and hang.ranks == (1,)) is is_own, hang.sentence


def stopped(rank: int, calls: tuple[Call, ...], *frames: StackFrame) -> RankEvidence:
    return RankEvidence(rank, calls=calls, groups=GROUPS, frames=frames, ending=Ending("stopped"), has_calls=True)


def test_the_rank_that_waits_for_the_store_is_said_to_do_so() -> None:
    first = Call("0", 1, "all_reduce", done=True)
    line = StackFrame("/home/me/train.py", 9, "main")
    stuck = Call("0", 2, "all_reduce", done=False, frames=(line,))
    late = stopped(1, (first,), STORE, StackFrame("/home/me/train.py", 40, "sync"))
    hang = judge([stopped(0, (first, stuck), line), late], hang_seen=True)
    assert (hang.kind, hang.ranks) == ("store", (1,))
    assert hang.sentence == (
        "Rank 1 waits for the store (train.py:40 in sync()); rank 0 waits for it in all_reduce 2 of the default group "
        "(train.py:9 in main())."
    )


def test_where_all_wait_for_the_store_at_an_unknown_line() -> None:
    ranks = [RankEvidence(rank, ending=Ending("error", 1, "DistStoreError", "wait timeout after")) for rank in (0, 1)]
    assert judge(ranks).sentence == "Ranks 0, 1 wait for the store."
