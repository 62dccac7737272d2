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
