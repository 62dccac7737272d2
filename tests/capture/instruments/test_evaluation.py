"""A model in evaluation mode: which of it is an evaluation."""

import threading
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hubs import make_hub

from ddprof.capture.instruments.evaluation import EvaluationMode


class Model:
    """A stand-in for `torch.nn.Module` with its mode."""

    def __init__(self, *parts: "Model") -> None:
        self.training, self.parts = True, parts

    def train(self, mode: bool = True) -> "Model":
        self.training = mode
        for part in self.parts:
            part.train(mode)
        return self

    def eval(self) -> "Model":
        return self.train(False)


@pytest.fixture
def hub() -> Any:
    observed = SimpleNamespace(training_thread=threading.get_ident())
    return make_hub(tracker=SimpleNamespace(index=20), observed=observed)


@pytest.fixture
def model(hub: Any, monkeypatch: pytest.MonkeyPatch) -> Model:
    monkeypatch.setattr(Model, "train", Model.train)  # put back whatever the instrument leaves
    torch: Any = ModuleType("torch")
    torch.nn = SimpleNamespace(Module=Model)
    EvaluationMode(hub).install(torch)
    return Model(Model(Model()), Model())


def test_from_eval_to_train_is_one_evaluation_with_all_that_is_inside(hub: Any, model: Model) -> None:
    for _ in range(2):
        model.eval()
        model.parts[0].train()
        model.train()
    assert len(hub.journal.evaluations) == 2 and all(part.training for part in (model, *model.parts))
    assert all(one["at"].endswith(" eval()") for one in hub.journal.evaluations)  # this file's, and not torch's


def test_a_wrapper_that_trains_ends_the_evaluation_of_what_it_holds(hub: Any, model: Model) -> None:
    """Trainers evaluate the module inside DistributedDataParallel, and train the wrapper again."""
    wrapper = Model(model)
    model.eval()
    Model().train()
    assert not hub.journal.evaluations
    wrapper.train()
    wrapper.train()
    assert len(hub.journal.evaluations) == 1


def test_a_model_that_is_trained_in_evaluation_mode_or_never_back_does_not_evaluate(hub: Any, model: Model) -> None:
    teacher = Model()
    teacher.eval()
    hub.tracker.index += 9
    model.eval()
    model.train()
    assert len(hub.journal.evaluations) == 1
    model.eval()
    hub.tracker.index += 9
    model.train()
    model.train()
    assert len(hub.journal.evaluations) == 1


@pytest.mark.parametrize("thread", [None, -1], ids=["before the first step", "another thread trains"])
def test_only_the_thread_that_trains_evaluates(hub: Any, model: Model, thread: int | None) -> None:
    hub.observed.training_thread = thread
    model.eval()
    model.train()
    assert not hub.journal.evaluations
