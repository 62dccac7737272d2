"""Verdicts on records that lack something."""

from ddprof.slices.hangs.evidence import Call, Ending, Group, RankEvidence
from ddprof.slices.hangs.judging.verdict import judge

GROUPS = {"0": Group("0", "default_pg", (0, 1))}
STOPPED = Ending("stopped", 100 * 10**9)


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
