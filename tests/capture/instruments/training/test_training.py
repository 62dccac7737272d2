"""Order of epochs, seen at the loader; checksums, bounded and never of shards; parameters without a gradient."""

import weakref
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from itertools import islice
from types import SimpleNamespace
from typing import Any

import pytest

from ddprof.capture.describe.observed import Observed
from ddprof.capture.guard import Guard
from ddprof.capture.instruments.dataloader import DatasetStates, SamplerPasses
from ddprof.capture.instruments.evaluation import EvaluationMode, _Open
from ddprof.capture.instruments.forward import ForwardPasses
from ddprof.capture.instruments.training.gradient_use import _FOLLOWED_STEPS, GradientUse
from ddprof.capture.instruments.training.replicas import (
    _MAX_ELEMENTS,
    _summed,
    are_unchanged,
    batch_norms,
    checksums,
    kept,
)

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
    assert found["line"]["file"].endswith("test_training.py")
    followed = Followed()
    followed.epochs(0, 1, 2)
    assert followed.repeated() == [0]
    followed = Followed()
    followed.epoch(batches=1)
    followed.epoch()
    assert followed.repeated() == [0]
    # Orders that set_epoch does not decide.
    usual = torch.utils.data.distributed.DistributedSampler
    of_its_own = type("Own", (usual,), {"__iter__": lambda sampler: iter([0, 1])})
    for followed in (Followed(shuffle=False), Followed(of_its_own)):
        followed.epochs(None, None, None)
        assert followed.passes.recorded(None) == []


def test_a_data_set_is_changed_where_the_loop_does_so_between_passes() -> None:
    data, states = SimpleNamespace(dataset=SimpleNamespace(epoch=0), read=0), DatasetStates()
    for epoch, is_changed in ((0, False), (0, False), (1, True)):
        data.dataset.epoch = epoch
        states.begins(SimpleNamespace(dataset=data), 0)
        data.read += 1  # as it makes batches
        states.ends(SimpleNamespace(_dataset=data))
        assert states.changed(0) is is_changed


def summed(*tensors: Any) -> dict[str, Any]:
    return _summed([(str(at), "parameter", tensor) for at, tensor in enumerate(tensors)])


def test_equal_bits_have_equal_checksums_and_what_cannot_be_read_is_left_out() -> None:
    one, other = torch.arange(12.0), torch.arange(12.0)
    assert summed(one) == summed(other)
    other[11] = torch.nextafter(other[11], torch.tensor(torch.inf))
    assert summed(one)["checksums"] != summed(other)["checksums"]
    found = summed(torch.zeros(3, device="meta"), torch.zeros(0), torch.eye(3).to_sparse(), torch.ones(2))
    assert found["names"] == ["3"]


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16", "int64", "bool", "complex64"])
def test_every_type_is_read(dtype: str) -> None:
    found = summed(torch.ones(3, 5, dtype=getattr(torch, dtype)), torch.zeros((), dtype=getattr(torch, dtype)))
    assert len(found["checksums"]) == 16
    assert found["values"] == ([1.0, 0.0] if "float" in dtype else [None, None])


def test_large_tensors_are_read_in_part_whatever_their_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = (64, 32, 8, 8)
    last = torch.zeros(shape).to(memory_format=torch.channels_last)
    for tensor in (torch.zeros(shape), last, torch.zeros(512, 512).t()):
        read: list[int] = []
        monkeypatch.setattr("zlib.crc32", lambda content, read=read: read.append(content.nbytes) or 0)
        summed(tensor)
        assert 0 < read[0] <= 4 * _MAX_ELEMENTS
    summed(torch.zeros(4000, 100)[:, ::2])
    assert read[-1] <= 4 * _MAX_ELEMENTS
    # Parameters and random numbers are left alone.
    layer = torch.nn.Linear(64, 64)
    before, state, version = layer.weight.clone(), torch.get_rng_state(), layer.weight._version
    summed(layer.weight)
    assert torch.equal(before, layer.weight) and torch.equal(state, torch.get_rng_state())
    assert layer.weight._version == version and layer.weight.grad is None


def test_of_a_model_without_a_wrapper_what_the_optimizer_updates_is_read() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    loose = torch.zeros(3, requires_grad=True)
    model[0].bias.requires_grad_(False)
    optimizer = torch.optim.SGD([*model.parameters(), loose], 0.1)
    (found,) = checksums([("module", model)], [optimizer], {id(optimizer): {"line": 3}})
    buffers = ["1.running_mean", "1.running_var", "1.num_batches_tracked"]
    assert found["names"] == ["0.weight", "1.weight", "1.bias", "SGD[4] (3)", *buffers]
    assert found["buffers"] == [4, 5, 6] and found["class"] == "Sequential" and found["line"] == {"line": 3}


def test_what_no_optimizer_holds_is_unchanged_and_what_is_not_read_may_have_changed() -> None:
    for of, unchanged in ((lambda model: model, False), (deepcopy, True)):
        model = torch.nn.Linear(40, 40)  # weights of which a third is read
        optimizer, before = torch.optim.SGD(of(model).parameters(), 0.1), kept([("module", model)])
        model(torch.ones(2, 40)).sum().backward()
        optimizer.step()
        assert are_unchanged(before) is unchanged
    with torch.no_grad():
        model.weight[20, 21] += 1
    assert not are_unchanged(before) and are_unchanged(kept([("fsdp2", model)])) is None


@pytest.mark.parametrize("kind", ["ddp", "module"])
def test_the_first_batch_of_a_script_without_a_loader_is_what_a_replica_is_given(kind: str) -> None:
    journal, observed = SimpleNamespace(batch=None, note=print), SimpleNamespace(saw_root=lambda kind, model: None)
    hub: Any = SimpleNamespace(guard=Guard(), observed=observed, journal=journal)
    forward: Any = ForwardPasses(hub)
    forward._torch, forward._learner = torch, None
    for values in ((8,), (9,)):
        forward._saw(kind, torch.nn.Linear(1, 1), (torch.arange(*values), "mask"))
    tensors = journal.batch["tensors"] if journal.batch else []
    assert [tensor["shape"] for tensor in tensors] == ([[8]] if kind == "ddp" else []) and all(
        tensor["fingerprint"] for tensor in tensors
    )


@pytest.mark.parametrize("steps", [1, 9])
@pytest.mark.parametrize("layer", [torch.nn.Dropout(0.1), torch.nn.LayerNorm(2)])
def test_a_whole_model_that_is_trained_after_eval_is_recorded(steps: int, layer: Any) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), layer).eval()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    observed = SimpleNamespace(models=lambda: [("module", model)], living_optimizers=lambda: [optimizer])
    hub: Any = SimpleNamespace(guard=Guard(), observed=observed, tracker=SimpleNamespace(index=3 + steps))
    instrument = EvaluationMode(hub)
    instrument._open = _Open(weakref.ref(model), 0, 3, None, "train.py:20")
    found = instrument.recorded()["left_in_evaluation"]
    assert (found is not None) == (steps == 9 and isinstance(layer, torch.nn.Dropout))
    instrument._open = _Open(weakref.ref(model[0]), 0, 3, None, "")  # frozen layers
    assert instrument.recorded() == {"left_in_evaluation": None}


@pytest.mark.parametrize("kind", ["fsdp1", "fsdp2", "deepspeed"])
def test_shards_are_not_read(kind: str) -> None:
    model = torch.nn.Linear(2, 2)
    assert checksums([(kind, model), ("module", model)], [torch.optim.SGD(model.parameters(), 0.1)], {}) == []


def test_batch_norms_that_are_frozen_or_synchronised_are_not_counted() -> None:
    of_another_library = type("SyncNorm", (torch.nn.BatchNorm1d,), {})(2)
    layers = (torch.nn.BatchNorm1d(2), of_another_library, torch.nn.BatchNorm2d(2), torch.nn.LayerNorm(2))
    model = torch.nn.Sequential(*layers)
    model[0].eval()
    found = batch_norms([("ddp", SimpleNamespace(module=model)), ("module", model)])
    assert found == [{"class": "Sequential", "kind": "ddp", "layers": 1, "first": "2"}]


class Loop:
    """A model of a used and an unused layer and its optimizer, with the instrument watching."""

    def __init__(self, make: Callable[[Any], Any]) -> None:
        self.model = torch.nn.ModuleDict({"used": torch.nn.Linear(2, 2), "idle": torch.nn.Linear(2, 3)})
        self.optimizer = make(self.model.parameters())
        self.hub: Any = SimpleNamespace(guard=Guard(), observed=Observed(Guard()), tracker=SimpleNamespace(index=0))
        self.hub.observed.saw_root("module", self.model)
        self.hub.observed.saw_optimizer(self.optimizer, lambda _: None)
        self.use = GradientUse(self.hub)
        self.use.install(torch)

    def step(self, *layers: str, zero: bool = True) -> None:
        if zero:
            self.optimizer.zero_grad()
        if layers:
            self.hub.observed.pass_begins()
            sum(self.model[name](torch.ones(1, 2)).sum() for name in layers).backward()  # type: ignore[union-attr]
        self.optimizer.step()
        for watch in list(self.hub.observed.step_watchers):
            watch(self.optimizer)
        self.hub.tracker.index += 1

    def window(self, *steps: tuple[str, ...]) -> None:
        self.use.window_opened(0, len(steps))
        for layers in steps:
            self.step(*layers)
        self.use.window_closed()

    def never(self) -> list[str]:
        return [m["name"] for m in self.record["missing"] if m["never"]]

    @property
    def record(self) -> dict[str, Any]:
        (found,) = self.use.recorded()["gradients"]
        return dict(found)


sgd, adam = partial(torch.optim.SGD, lr=0.1), torch.optim.AdamW


@pytest.mark.parametrize("make", [sgd, adam])
def test_a_layer_without_gradients_is_named(make: Callable[[Any], Any]) -> None:
    loop = Loop(make)
    loop.window(("used",), ("used",), ())  # a step without any gradient says nothing
    assert loop.never() == ["idle.weight", "idle.bias"]
    assert loop.record["steps"] == [0, 1] and loop.record["parameters"] == 4
    assert loop.record["stateful"] == (make is adam)


def test_what_gets_a_gradient_once_is_used_frozen_parameters_want_none_and_watching_ends() -> None:
    loop = Loop(sgd)
    loop.window(("used",), ("used",))
    loop.step("used", "idle")
    assert loop.never() == []
    assert {m["name"]: m["steps"] for m in loop.record["missing"]} == {"idle.weight": [0, 1], "idle.bias": [0, 1]}
    loop = Loop(adam)
    loop.step("used", "idle")
    loop.window(("used",))
    assert loop.never() == []
    for zero in (True, False):
        loop = Loop(sgd)
        loop.window(("used", "idle"))
        for _ in range(4):
            loop.step("used", zero=zero)
        assert loop.record["missing"] == [] and loop.hub.observed.pass_watchers == []
        assert (loop.record["watched_steps"], loop.record["kept_steps"]) == (3, 0 if zero else 3)
    loop.window(("used",))
    for _ in range(_FOLLOWED_STEPS):
        assert loop.hub.observed.step_watchers
        loop.step("used")
    assert loop.hub.observed.step_watchers == []
    loop = Loop(sgd)
    loop.model["idle"].requires_grad_(False)
    loop.optimizer.add_param_group({"params": [torch.nn.Parameter(torch.empty(0))]})  # a shard that lies elsewhere
    loop.window(("used",))
    assert loop.record["missing"] == []
