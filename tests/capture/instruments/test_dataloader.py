"""Content of a batch: samples and elements, whatever kind of tensors it is made of."""

from types import SimpleNamespace
from typing import Any

import pytest
from hubs import installed, make_hub

from ddprof.capture.describe.observed import Observed
from ddprof.capture.guard import Guard
from ddprof.capture.instruments.dataloader import EVALUATION, DataLoading

pytestmark = pytest.mark.torch
torch: Any = pytest.importorskip("torch")


def hub_of_a_loader(**timers: Any) -> Any:
    return make_hub(observed=Observed(Guard()), tracker=SimpleNamespace(index=0), **timers)


def seen(batch: Any, batch_size: int | None = None) -> Any:
    """The journal after a batch was handed out."""
    hub = hub_of_a_loader()
    with installed(DataLoading(hub), torch) as loading:
        loading.saw_batch(SimpleNamespace(_index_sampler=SimpleNamespace(batch_size=batch_size)), batch)
    return hub.journal


def test_a_batch_fetched_without_gradients_once_training_has_begun_is_an_evaluations() -> None:
    data, ranges = torch.utils.data, list[Any]()
    hub = hub_of_a_loader(begin=lambda phase, name=None: ranges.append(name))
    with installed(DataLoading(hub), torch) as loading:
        train, held_out = (data.DataLoader(data.TensorDataset(torch.zeros(n, 2)), batch_size=2) for n in (4, 6))
        with torch.no_grad():
            next(iter(held_out))  # nothing is trained yet: a job may do nothing but this
        next(iter(train))
        loading.optimizer_stepped()
        assert ranges == [None] * 4
        with torch.no_grad():
            list(held_out)
        assert set(ranges[4:]) == {EVALUATION}
        next(iter(train))
        assert ranges[-2:] == [None, None]
        assert loading.recorded()["loader_passes"] == 3  # that over `held_out` without gradients is none
    assert sum(each["batches"] for each in hub.journal.batches()) == 3


def test_a_loader_is_not_taken_for_one_that_was_freed_and_had_its_id() -> None:
    """A first look at all samples, then training on this rank's half of them."""
    hub, loader, samples = hub_of_a_loader(), torch.utils.data.DataLoader, range(200)
    with installed(DataLoading(hub), torch) as loading:
        freed, trains = 0, list[Any]()
        while not trains or id(trains[-1]) != freed:  # the freed memory may also go to another object of that size
            first = loader(samples, batch_size=1)
            list(first)
            freed = id(first)
            del first
            trains.append(loader(samples, batch_size=4, sampler=range(0, 200, 2)))
        list(trains[-1])
        list(trains[-1])
        loading.optimizer_stepped()
        said = loading.recorded()
        assert said["sample_indices"] == [*range(0, 200, 2)] and said["dataset_changed"] is False
    assert hub.observed.describe()["dataloader"]["batch_size"] == 4


def test_samples_and_elements_of_lists_and_mappings() -> None:
    x, y = torch.zeros(4, 3), torch.zeros(4, dtype=torch.long)
    for batch in ([x, y], (x, y), {"x": x, "label": "a", "y": y}):
        journal = seen(batch)
        assert journal.batches() == [{"step": 0, "batches": 1, "samples": 4, "elements": 16}]
        assert [tensor["shape"] for tensor in (journal.batch or {})["tensors"]] == [[4, 3], [4]]
    assert seen([torch.zeros(58, 8, 40)], 8).batches()[0]["samples"] == 8  # sequences whose first dimension is the time


@pytest.mark.parametrize("layout", ["strided", "jagged"])
@pytest.mark.filterwarnings("ignore:.*prototype:UserWarning")
def test_nested_tensors_are_counted_and_not_described(layout: str) -> None:
    nested = torch.nested.nested_tensor([torch.ones(3, 2), torch.ones(5, 2)], layout=getattr(torch, layout))
    journal = seen([nested, torch.zeros(2)])
    assert journal.batches() == [{"step": 0, "batches": 1, "samples": 2, "elements": 18}]
    assert [tensor["shape"] for tensor in (journal.batch or {})["tensors"]] == [[2]]
    assert "nested" in journal.notes[0]
