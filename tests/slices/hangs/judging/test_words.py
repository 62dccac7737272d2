"""Sentences of verdicts: who waits, and for whom."""

from ddprof.slices.hangs.evidence import Call, Ending, Group, RankEvidence, StackFrame
from ddprof.slices.hangs.judging.verdict import judge

GROUPS = {"0": Group("0", "default_pg", (0, 1))}
STORE = StackFrame("/env/site-packages/torch/distributed/distributed_c10d.py", 5, "_store_based_barrier")


def of_rank(rank: int, calls: tuple[Call, ...], *frames: StackFrame) -> RankEvidence:
    return RankEvidence(rank, calls=calls, groups=GROUPS, frames=frames, ending=Ending("stopped"), has_calls=True)


def test_the_rank_that_waits_for_the_store_is_said_to_do_so() -> None:
    first = Call("0", 1, "all_reduce", done=True)
    line = StackFrame("/home/me/train.py", 9, "main")
    stuck = Call("0", 2, "all_reduce", done=False, frames=(line,))
    late = of_rank(1, (first,), STORE, StackFrame("/home/me/train.py", 40, "sync"))
    hang = judge([of_rank(0, (first, stuck), line), late], hang_seen=True)
    assert (hang.kind, hang.ranks) == ("store", (1,))
    assert hang.sentence == (
        "Rank 1 waits for the store (train.py:40 in sync()); rank 0 waits for it in all_reduce 2 of the default group "
        "(train.py:9 in main())."
    )


def test_where_all_wait_for_the_store_at_an_unknown_line() -> None:
    ranks = [RankEvidence(rank, ending=Ending("error", 1, "DistStoreError", "wait timeout after")) for rank in (0, 1)]
    assert judge(ranks).sentence == "Ranks 0, 1 wait for the store."
