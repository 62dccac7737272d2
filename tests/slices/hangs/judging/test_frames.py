"""The user's line in a stack."""

import pytest

from ddprof.slices.hangs.evidence import StackFrame
from ddprof.slices.hangs.judging.frames import user_frame

OWN = StackFrame("/env/lib/python3.11/site-packages/ddprof/capture/patch.py", 5, "wrapped")
TORCH = StackFrame("/env/lib/python3.11/site-packages/torch/nn/modules/module.py", 9, "forward")
MINE = StackFrame("/home/me/train.py", 3, "main")


@pytest.mark.parametrize("frames,line", [((OWN, TORCH, MINE), MINE), ((OWN, TORCH), TORCH), ((OWN,), None), ((), None)])
def test_the_users_line_comes_first_captures_own_never(frames: tuple[StackFrame, ...], line: StackFrame | None) -> None:
    assert user_frame(frames) == line
