"""Description of a DataLoader: its settings and its sampler, whatever its data set is."""

from typing import Any

import pytest

from ddprof.capture.describe import loader as describe_loader

pytestmark = pytest.mark.torch
data = pytest.importorskip("torch.utils.data")
EIGHT = {"__iter__": lambda self: iter(range(8))}
STREAM = type("Stream", (data.IterableDataset,), EIGHT)()  # has no length, and draws its samples itself


@pytest.mark.parametrize("batch_size", [4, None])
def test_an_iterable_data_set_has_settings_and_no_sampler(batch_size: int | None) -> None:
    described = describe_loader.describe(data.DataLoader(STREAM, batch_size=batch_size, pin_memory=False))
    assert described["dataset"] == "Stream" and described["num_workers"] == 0
    assert described["batch_size"] == batch_size
    assert (described["sampler"], described["dataset_length"], described["batches_per_epoch"]) == (None, None, None)


def test_a_sampler_without_a_length_is_described() -> None:
    endless = type("Endless", (data.Sampler,), EIGHT)()
    described: Any = describe_loader.describe(data.DataLoader(range(8), sampler=endless))
    assert described["sampler"]["class"] == "Endless" and described["batches_per_epoch"] is None
