"""Time in calls of torch.distributed, waits for what they began included, in a job of one rank."""

import sys
from pathlib import Path
from typing import Any

import pytest
from hubs import installed, make_hub

from ddprof.capture.files.step import COLLECTIVE
from ddprof.capture.instruments.communication.collectives import WAIT_RANGE, Collectives

pytestmark = pytest.mark.torch


@pytest.mark.filterwarnings("ignore:.*deprecated:FutureWarning")
def test_a_call_and_the_wait_for_it_are_timed_once_each(tmp_path: Path) -> None:
    dist = pytest.importorskip("torch.distributed")
    torch, begun, depth = sys.modules["torch"], list[str](), [0]

    def begin(phase: int, name: str) -> bool:
        assert phase == COLLECTIVE
        depth[0] += 1
        if depth[0] == 1:
            begun.append(name.removeprefix("ddprof::collective."))
        return depth[0] == 1

    def end(phase: int, token: Any) -> None:
        depth[0] -= 1

    waits = dist.Work.wait
    instrument = Collectives(make_hub(begin=begin, end=end, calls=None, process_group_exists=lambda: None))
    instrument._ask_nccl = lambda _: None  # type: ignore[method-assign]
    with installed(instrument, torch):
        dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
        dist.all_reduce(torch.ones(2))
        dist.all_reduce(torch.ones(2), async_op=True).wait()
        dist.all_gather_into_tensor(torch.empty(2), torch.ones(2))
        dist.destroy_process_group()
    renamed = "all_gather_single" if hasattr(dist, "all_gather_single") else "all_gather_into_tensor"
    assert begun == ["all_reduce", "all_reduce", WAIT_RANGE.removeprefix("ddprof::collective."), renamed]
    assert dist.Work.wait is waits and not depth[0]
