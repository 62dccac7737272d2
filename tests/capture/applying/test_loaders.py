"""DataLoaders made with other settings, or as the script has them."""

import builtins
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hubs import applying, on_another_thread, told  # noqa: E402
from torch.utils.data import DataLoader, IterableDataset  # noqa: E402

from ddprof.capture.applying import loaders  # noqa: E402
from ddprof.capture.applying.loaders import LoaderSettingsApplier, unsendable  # noqa: E402
from ddprof.settings.wanted import WantedFix  # noqa: E402

pytestmark = pytest.mark.torch
NUMBERS = range(10)
# Not shared out among workers.
Endless: Any = type("Endless", (IterableDataset,), {"__iter__": lambda self: iter(NUMBERS)})


def test_a_loader_is_made_with_the_settings_and_gives_the_same_batches() -> None:
    with applying(LoaderSettingsApplier, "num_workers=2", "prefetch_factor=3", "persistent_workers=true") as outcomes:
        # Spawned: a forked worker inherits what threads of other tests hold at that moment, and may wait for ever.
        loader = DataLoader(NUMBERS, 5, multiprocessing_context="spawn")
    assert (loader.num_workers, loader.prefetch_factor, loader.persistent_workers) == (2, 3, True)
    assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    before = {"num_workers": 0, "prefetch_factor": None, "persistent_workers": False}
    assert told(outcomes) == [(name, True, value, "") for name, value in before.items()]
    at = "tests/capture/applying/test_loaders.py"
    assert all(row["at"].startswith(at) and row["objects"] == 1 for row in outcomes.recorded())
    assert DataLoader(NUMBERS, 5).num_workers == 0
    with applying(LoaderSettingsApplier, "num_workers=4"):  # of an iterable set that is shared out already
        assert DataLoader(Endless(), num_workers=2).num_workers == 4


def test_only_the_loader_of_the_line_is_changed() -> None:
    line = test_only_the_loader_of_the_line_is_changed.__code__.co_firstlineno + 4
    stated = (f"num_workers=2@test_loaders.py:{line}", "num_workers=1@nowhere.py:1", "num_workers=0")
    with applying(LoaderSettingsApplier, *stated) as outcomes:
        loaders = [DataLoader(NUMBERS, 5)]  # this one
        loaders.append(DataLoader(NUMBERS, 5))
    assert [loader.num_workers for loader in loaders] == [2, 0]
    (missed,) = [row for row in outcomes.recorded() if row["value"] == 1]
    assert not missed["applied"] and "made no DataLoader there, but at" in missed["why"]


@pytest.mark.parametrize(
    ("stated", "given", "why"),
    [
        (["persistent_workers=true"], {}, "needs num_workers above 0"),
        (["prefetch_factor=4"], {}, "needs num_workers above 0"),
        (["multiprocessing_context=spawn"], {}, "needs num_workers above 0"),
        (["num_workers=0"], {"num_workers": 2, "prefetch_factor": 4}, "the script sets prefetch_factor"),
        (["num_workers=0"], {"num_workers": 2, "timeout": 9}, "the script sets timeout"),
        (["pin_memory=true"], {}, "no accelerator"),
        (["num_workers=2"], {"dataset": Endless()}, "each worker may read all"),
        (["num_workers=4"], {"dataset": Endless(), "num_workers": 1}, "each worker may read all"),
        (["multiprocessing_context=spawn"], {"num_workers": 1, "collate_fn": lambda x: x}, "collate_fn cannot be sent"),
    ],
)
def test_what_would_fail_or_read_samples_twice_is_refused(stated: list[str], given: dict[str, Any], why: str) -> None:
    if why == "no accelerator" and torch.cuda.is_available():
        pytest.skip("there is one")
    with applying(LoaderSettingsApplier, *stated) as outcomes:
        loader = DataLoader(**{"dataset": NUMBERS, "batch_size": 5, **given})
    assert loader.num_workers == given.get("num_workers", 0)
    ((_, applied, _, reason),) = told(outcomes)
    assert not applied and why in reason


def test_settings_of_one_fix_are_applied_whole_or_not_at_all() -> None:
    fix = WantedFix({"prefetch_factor": 4, "pin_memory": False})
    with applying(LoaderSettingsApplier, fix, "persistent_workers=false") as outcomes:
        assert DataLoader(NUMBERS, 5, pin_memory=True).pin_memory is True
    applied = {name: applied for name, applied, _, _ in told(outcomes)}
    assert applied == {"prefetch_factor": False, "pin_memory": False, "persistent_workers": True}


def test_a_constructor_that_raises_is_called_as_the_script_has_it(capfd: pytest.CaptureFixture[str]) -> None:
    class Strict(DataLoader[int]):
        def __setattr__(self, name: str, value: Any) -> None:
            if name == "num_workers" and value:
                raise RuntimeError("no workers\nhere")
            super().__setattr__(name, value)

    with applying(LoaderSettingsApplier, "num_workers=2") as outcomes:
        assert Strict(NUMBERS, 5).num_workers == 0
        with pytest.raises(ValueError, match="mutually exclusive"):
            DataLoader(NUMBERS, shuffle=True, sampler=[1])
    assert "RuntimeError: no workers here; made as the script has it" in told(outcomes)[0][3]
    assert capfd.readouterr().err.count("no workers here") == 1


def test_a_subclass_and_a_second_thread_are_changed_too() -> None:
    class Mine(DataLoader[int]):
        def __init__(self) -> None:
            super().__init__(NUMBERS, 5)

    made: list[int] = []
    with applying(LoaderSettingsApplier, "num_workers=2"):
        on_another_thread(lambda: made.append(Mine().num_workers))
    assert made == [2]


def test_views_are_sent_uncopied_and_classes_found_by_the_scripts_import(monkeypatch: pytest.MonkeyPatch) -> None:
    views = list(torch.zeros(20_000, 784).unbind())  # pickled one by one they would be a terabyte
    assert unsendable([("dataset", views)], "forkserver") == ""
    own = [torch.zeros(1) for _ in range(300)]
    assert "300 tensors of their own" in unsendable([("dataset", own)], "forkserver")
    assert unsendable([("dataset", own)], "spawn") == ""
    assert "cannot be sent" in unsendable([("dataset", lambda: 0)], "spawn")

    # Capture imports ddprof's modules by a private name, which is no business of a data set's.
    def private(name: str, *arguments: Any) -> Any:
        raise ModuleNotFoundError(f"No module named '_{name}'")

    monkeypatch.setitem(vars(loaders), "__builtins__", {**vars(builtins), "__import__": private})
    assert unsendable([("dataset", torch.utils.data.TensorDataset(torch.ones(3)))], "spawn") == ""
