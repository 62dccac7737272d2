"""Order of epochs, seen at the loader."""

from itertools import islice
from typing import Any

import pytest

from ddprof.capture.instruments.training.passes import SamplerPasses

pytestmark = pytest.mark.torch
torch: Any = pytest.importorskip("torch")


class Followed:
    """A loader with a sampler of the first of two ranks, and the passes over it."""

    def __init__(self, sampler: Any = None, **settings: Any) -> None:
        data = torch.utils.data.TensorDataset(torch.arange(8.0))
        sampler = sampler or torch.utils.data.distributed.DistributedSampler
        self.sampler = sampler(data, num_replicas=2, rank=0, **settings)
        self.loader = torch.utils.data.DataLoader(data, batch_size=2, sampler=self.sampler)
        self.passes = SamplerPasses()

    def epochs(self, *numbers: int | None) -> None:
        for number in numbers:
            self.epoch(number)

    def epoch(self, number: int | None = None, batches: int | None = None) -> None:
        if number is not None:
            self.sampler.set_epoch(number)
        self.passes.begins(self.loader, 0)
        iterator = iter(self.loader)
        for _ in islice(iterator, batches):
            pass
        if batches is None:
            self.passes.ends(iterator)

    def repeated(self) -> list[int]:
        return [found["repeated"] for found in self.passes.recorded(0) if found["trains"]]


def test_an_epoch_repeats_the_one_before_without_set_epoch_alone() -> None:
    followed = Followed()
    followed.epochs(None, None, None)
    assert followed.repeated() == [2]
    (found,) = followed.passes.recorded(None)
    assert (found["begun"], found["ended"], found["trains"]) == (3, 3, False)
    assert found["line"]["file"].endswith("test_passes.py")
    followed = Followed()
    followed.epochs(0, 1, 2)
    assert followed.repeated() == [0]
    followed = Followed()
    followed.epoch(batches=1)
    followed.epoch()
    assert followed.repeated() == [0]


def test_orders_that_set_epoch_does_not_decide_are_not_followed() -> None:
    usual = torch.utils.data.distributed.DistributedSampler
    of_its_own = type("Own", (usual,), {"__iter__": lambda sampler: iter([0, 1])})
    for followed in (Followed(shuffle=False), Followed(of_its_own)):
        followed.epochs(None, None, None)
        assert followed.passes.recorded(None) == []
