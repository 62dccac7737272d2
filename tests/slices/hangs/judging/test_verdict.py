"""Verdicts: records that lack something, exceptions that are consequences, and who is said to wait for whom."""

from typing import Any

import pytest

from ddprof.slices.hangs.evidence import Call, Ending, Group, RankEvidence, StackFrame
from ddprof.slices.hangs.judging.frames import user_frame
from ddprof.slices.hangs.judging.verdict import judge

GROUPS = {"0": Group("0", "default_pg", (0, 1))}
LOADER = StackFrame("/env/site-packages/torch/utils/data/dataloader.py", 1290, "_get_data")
STORE = StackFrame("/env/site-packages/torch/distributed/distributed_c10d.py", 5, "_store_based_barrier")
MINE = StackFrame("/home/me/train.py", 7, "main")
OWN = StackFrame("/env/lib/python3.11/site-packages/ddprof/capture/patch.py", 5, "wrapped")
TORCH = StackFrame("/env/lib/python3.11/site-packages/torch/nn/modules/module.py", 9, "forward")
CLOSED = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [::1]:3"
# The exception of rank 1 beside one of a closed connection on rank 0; whether it is a cause of its own.
EXCEPTIONS = [
    ("ConnectionResetError", "[Errno 104] Connection reset by peer", (MINE,), True),
    ("ReadTimeout", "HTTPSConnectionPool(host='store'): Read timed out.", (MINE,), True),
    ("RuntimeError", "DataLoader timed out after 5 seconds", (LOADER, MINE), True),
    ("RuntimeError", CLOSED, (MINE,), False),
    ("TrainingFailed", f"step 7: {CLOSED}", (MINE,), False),
]


def left(rank: int, calls: tuple[Call, ...], ending: Ending, *frames: StackFrame, **more: Any) -> RankEvidence:
    """The evidence of a rank that left calls."""
    return RankEvidence(rank, calls=calls, groups=GROUPS, frames=frames, ending=ending, has_calls=True, **more)


@pytest.mark.parametrize("frames,line", [((OWN, TORCH, MINE), MINE), ((OWN, TORCH), TORCH), ((OWN,), None), ((), None)])
def test_the_users_line_comes_first_captures_own_never(frames: tuple[StackFrame, ...], line: StackFrame | None) -> None:
    assert user_frame(frames) == line


def test_a_rank_whose_calls_have_no_times_is_not_judged_by_them() -> None:
    calls = [(Call("0", 1, "all_reduce", done=False, entered_ns=entered_ns),) for entered_ns in (None, 10**9)]
    stop = Ending("stopped", 100 * 10**9)
    assert judge([left(rank, of, stop, seen_ns=stop.at_ns) for rank, of in enumerate(calls)]).kind == "inside"


def test_the_call_that_failed_is_the_last_one_where_none_has_a_time() -> None:
    calls = tuple(Call("0", number, "all_reduce", done=True) for number in (1, 2, 3))
    lost = Ending("error", 2, "RuntimeError", "[gloo] Connection closed by peer")
    hang = judge([left(0, calls, lost), left(1, calls[:2], Ending("finished", 1))], hang_seen=True)
    assert (hang.kind, hang.ranks, hang.stuck[0].number) == ("ended", (1,), 3), hang.sentence


def failed(rank: int, done: bool, error: str, message: str, *frames: StackFrame) -> RankEvidence:
    ending = Ending("error", (9 - rank) * 10**9, error, message, frames)
    return left(rank, (Call("0", 1, "all_reduce", done, entered_ns=10**9),), ending, *frames)


@pytest.mark.parametrize(("error", "message", "frames", "is_own"), EXCEPTIONS)
def test_only_the_words_of_c10d_excuse_an_exception(error: str, message: str, frames, is_own: bool) -> None:
    ranks = [failed(0, False, "RuntimeError", CLOSED, MINE), failed(1, True, error, message, *frames)]
    hang = judge(ranks, hang_seen=True)
    assert (hang.kind == "error" and hang.ranks == (1,)) is is_own, hang.sentence


def test_the_rank_that_waits_for_the_store_is_said_to_do_so() -> None:
    first = Call("0", 1, "all_reduce", done=True)
    line = StackFrame("/home/me/train.py", 9, "main")
    stuck = Call("0", 2, "all_reduce", done=False, frames=(line,))
    late = left(1, (first,), Ending("stopped"), STORE, StackFrame("/home/me/train.py", 40, "sync"))
    hang = judge([left(0, (first, stuck), Ending("stopped"), line), late], hang_seen=True)
    waits = "rank 0 waits for it in all_reduce 2 of the default group (train.py:9 in main())"
    assert hang.sentence == f"Rank 1 waits for the store (train.py:40 in sync()); {waits}."
    assert (hang.kind, hang.ranks) == ("store", (1,))


def test_where_all_wait_for_the_store_at_an_unknown_line() -> None:
    ranks = [RankEvidence(rank, ending=Ending("error", 1, "DistStoreError", "wait timeout after")) for rank in (0, 1)]
    assert judge(ranks).sentence == "Ranks 0, 1 wait for the store."
