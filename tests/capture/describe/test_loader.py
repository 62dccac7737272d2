"""Description of a DataLoader: its settings and its sampler, whatever its data set is."""

from collections.abc import Iterator
from typing import Any

import pytest

from ddprof.capture.describe import loader as describe_loader

pytestmark = pytest.mark.torch
data = pytest.importorskip("torch.utils.data")


class Stream(data.IterableDataset):  # type: ignore[misc, name-defined]
    """Has no length, and draws its samples itself."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(8))


@pytest.mark.parametrize("batch_size", [4, None])
def test_an_iterable_data_set_has_settings_and_no_sampler(batch_size: int | None) -> None:
    described = describe_loader.describe(data.DataLoader(Stream(), batch_size=batch_size, pin_memory=False))
    assert described["dataset"] == "Stream" and described["num_workers"] == 0
    assert described["batch_size"] == batch_size
    assert (described["sampler"], described["dataset_length"], described["batches_per_epoch"]) == (None, None, None)


def test_a_sampler_without_a_length_is_described() -> None:
    class Endless(data.Sampler):  # type: ignore[misc, name-defined]
        def __iter__(self) -> Iterator[int]:
            return iter(range(8))

    described = describe_loader.describe(data.DataLoader(range(8), sampler=Endless()))
    sampler: Any = described["sampler"]
    assert sampler["class"] == "Endless" and described["batches_per_epoch"] is None
