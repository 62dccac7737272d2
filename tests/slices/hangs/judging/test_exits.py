"""Exceptions of ranks: causes, and consequences of a peer's end."""

import pytest

from ddprof.slices.hangs.evidence import Call, Ending, Group, RankEvidence, StackFrame
from ddprof.slices.hangs.judging.verdict import judge

GROUPS = {"0": Group("0", "default_pg", (0, 1))}
LOADER = StackFrame("/env/site-packages/torch/utils/data/dataloader.py", 1290, "_get_data")
MINE = StackFrame("/home/me/train.py", 7, "main")
CLOSED = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [::1]:3"


def of_rank(rank: int, done: bool, error: str, message: str, *frames: StackFrame) -> RankEvidence:
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
    ranks = [of_rank(0, False, "RuntimeError", CLOSED, MINE), of_rank(1, True, error, message, *frames)]
    hang = judge(ranks, hang_seen=True)
    assert (hang.kind == "error" and hang.ranks == (1,)) is is_own, hang.sentence
