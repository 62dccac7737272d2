"""Notifications and patches of instrumentors, and what those see that a fake of torch or of the kernel can play."""

import gc
import importlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hubs import installed, make_hub

from ddprof.capture.bootstrap import instrumentors
from ddprof.capture.files.layout import host_label
from ddprof.capture.guard import Guard
from ddprof.capture.instruments import cpu_waits, workers
from ddprof.capture.instruments.base import Instrumentor, Listeners, PatchSet
from ddprof.capture.instruments.cpu_waits import CpuContention
from ddprof.capture.instruments.evaluation import EvaluationMode
from ddprof.capture.instruments.forward import ForwardPasses, wrapper_forwards
from ddprof.capture.instruments.garbage import GarbageCollection
from ddprof.capture.instruments.gradients import GradientTimes
from ddprof.capture.instruments.pipelines import MegatronSchedules
from ddprof.capture.journal import Journal
from ddprof.capture.steps.native_tracker import outside

# Is told of nothing; is told of the end of windows.
Silent: Any = type("Silent", (Instrumentor,), {"_install": lambda self, module: None})
Watching: Any = type("Watching", (Silent,), {"window_closed": lambda self: None})


def test_only_hooks_that_are_overridden_are_kept_and_few_stand_on_the_step_path() -> None:
    hub: Any = SimpleNamespace()
    watching = Watching(hub)
    listeners = Listeners([Silent(hub), watching, Silent(hub)])
    assert listeners.window_closed == [watching.window_closed]
    assert listeners.window_opened == listeners.step_ended == listeners.optimizer_stepped == []
    hub: Any = SimpleNamespace(guard=Guard())
    listeners = Listeners(instrumentors(hub))
    assert [type(hook.__self__).__name__ for hook in listeners.step_ended] == ["ForwardPasses", "GradientTimes"]
    assert [type(hook.__self__).__name__ for hook in listeners.optimizer_stepped] == ["DataLoading", "ForwardPasses"]


def test_patch_restores_inherited_and_own_attributes_and_leaves_a_later_patch_alone() -> None:
    class Base:
        def f(self) -> int:
            return 1

    class Child(Base):
        pass

    own = vars(Base)["f"]
    for owner in (Child, Base):
        patches = PatchSet()
        patches.add(owner, "f", lambda self: 2)
        assert Child().f() == 2 and patches
        patches.clear()
        patches.clear()
        assert Child().f() == 1
    assert "f" not in vars(Child) and vars(Base)["f"] is own
    owner = SimpleNamespace(f=1)
    patches.add(owner, "f", 2)
    owner.f = 3
    patches.clear()
    assert owner.f == 3


@pytest.mark.parametrize(("model", "stages"), [(["a", "b"], [1, 5]), ("whole", [1])])
def test_a_schedule_of_megatron_is_described_by_its_first_training_call(model: Any, stages: list[int]) -> None:
    seen: list[dict[str, Any]] = []
    name = f"forward_backward_pipelining_with{'' if len(stages) > 1 else 'out'}_interleaving"
    module: Any = ModuleType("megatron.core.pipeline_parallel.schedules")
    setattr(module, name, lambda **given: given["num_microbatches"])
    one_of_four = {"get_pipeline_model_parallel_rank": lambda: 1, "get_pipeline_model_parallel_world_size": lambda: 4}
    module.parallel_state = SimpleNamespace(**one_of_four)
    began: list[int] = []
    timers = {"begin": lambda phase, name: began.append(phase), "end": lambda phase, token: None}
    hub: Any = SimpleNamespace(guard=Guard(), observed=SimpleNamespace(saw_pipeline=seen.append), **timers)
    MegatronSchedules(hub).install(module)
    for microbatches, forward_only in ((2, True), (16, False), (8, False)):
        given = {"model": model, "num_microbatches": microbatches, "forward_only": forward_only}
        assert getattr(module, name)(**given) == microbatches
    told = {"schedule": name, "stage_indices": stages, "stages": 4 * len(stages), "microbatches": 16}
    assert seen == [told] and len(began) == 3  # every call begins a step, before what it receives


@pytest.mark.torch
@pytest.mark.parametrize(("first_step", "last_step"), [(5, 7), (5, 5)])
def test_only_the_last_step_of_a_window_is_hooked(first_step: int, last_step: int) -> None:
    torch = pytest.importorskip("torch")
    model, journal = torch.nn.Linear(2, 2), Journal()
    observed = SimpleNamespace(ddp_model=lambda: SimpleNamespace(module=model), frameworks=["ddp"])
    hub: Any = SimpleNamespace(observed=observed, journal=journal)
    gradients = GradientTimes(hub)
    gradients.install(torch)
    gradients.window_opened(first_step, last_step)
    for step in range(first_step, last_step + 1):
        assert bool(gradients._handles) == (step == last_step)
        model(torch.ones(1, 2)).sum().backward()
        gradients.step_ended(step)
    gradients.window_closed()
    assert not gradients._handles and journal.gradient_ready is not None
    assert journal.gradient_ready["step"] == last_step
    assert sorted(entry["name"] for entry in journal.gradient_ready["parameters"]) == ["bias", "weight"]


@pytest.mark.torch
@pytest.mark.parametrize("asked", [None, 4711], ids=["forked by itself", "started by multiprocessing"])
def test_a_workers_file_has_the_name_of_its_rank(asked: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asked for it: the parent of a worker under forkserver is the server."""
    pytest.importorskip("torch.utils.data")
    monkeypatch.setattr(workers, "parent_process", lambda: asked and SimpleNamespace(pid=asked))
    stem = f"rank0.{host_label()}.{asked or os.getppid()}.0"
    (tmp_path / f"{stem}.sidecar.json").touch()
    hub = make_hub(folder=tmp_path, config=SimpleNamespace(stacks=False))
    with installed(workers.LoaderWorkers(hub), sys.modules["torch"]) as instrument:
        instrument._begins(SimpleNamespace(id=0))
    assert (tmp_path / f"{stem}.workers.jsonl").exists()


@pytest.mark.torch
@pytest.mark.parametrize("draw", ["time.time", "random.random", "numpy.random.rand", "torch.seed"])
def test_a_batch_whose_making_draws_random_numbers_is_told_from_an_order_that_is_drawn(draw: str) -> None:
    data: Any = pytest.importorskip("torch.utils.data")
    module, _, name = draw.rpartition(".")
    made: Any = getattr(importlib.import_module(module), name)
    samples = type("Samples", (), {"__len__": lambda _: 8, "__getitem__": lambda _, at: (made(), at)[1]})()
    with installed(workers.LoaderWorkers(make_hub()), sys.modules["torch"]) as instrument:
        assert len(list(data.DataLoader(samples, batch_size=2, shuffle=True))) == 4
        assert instrument.recorded() == {"fetch_draws": draw != "time.time"}


LONG_NS = 2_000_000


@pytest.fixture
def automatic() -> Iterator[None]:
    """Automatic collection as it was, whatever the test has made of it."""
    was = gc.isenabled()
    yield
    (gc.enable if was else gc.disable)()


def test_what_a_handler_raises_in_the_callback_ends_the_script() -> None:
    """A signal that comes while the collector runs is handled in the first Python code after it: our callback."""
    ending, dropped = [SystemExit(4)], list[Any]()

    def handled(*_: object) -> None:
        if ending:
            raise ending.pop()

    def another(*_: object) -> None:  # Python code in which the interpreter looks for what is pending, as jax has it
        for _each in range(2):
            pass

    callback = outside(handled)
    assert callback is not None
    gc.callbacks.append(callback)
    gc.callbacks.insert(0, another)
    try:
        with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit, match="4"):
            patch.setattr(sys, "unraisablehook", dropped.append)
            gc.collect()
            for _ in range(2):  # where the interpreter looks for what is pending
                pass
    finally:
        gc.callbacks[:] = [each for each in gc.callbacks if each not in (callback, another)]
    assert dropped == []


@pytest.mark.usefixtures("automatic")
def test_a_collection_while_automatic_ones_are_off_was_called() -> None:
    kept: list[dict[str, Any]] = []
    with installed(GarbageCollection(make_hub(journal=SimpleNamespace(gc=kept))), ModuleType("torch")) as collections:
        gc.enable()
        for switch in (gc.enable, gc.disable):
            collections._event("start", {"generation": 2})
            collections._started_ns -= LONG_NS
            switch()
            collections._event("stop", {"generation": 2})
    assert [row["was_called"] for row in kept if row["dur_ns"] >= LONG_NS] == [False, True]


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
    return make_hub(tracker=SimpleNamespace(index=20), observed=SimpleNamespace(training_thread=threading.get_ident()))


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


@pytest.mark.torch
def test_every_wrapper_is_where_the_table_says_and_timed_once_its_package_is_imported() -> None:
    with installed(ForwardPasses(make_hub()), pytest.importorskip("torch")) as passes:
        wrappers = [wrapper for wrapper in wrapper_forwards(passes) if wrapper.module.startswith("torch.")]
        for wrapper in wrappers:
            wrapper.install(importlib.import_module(wrapper.module))
        assert sorted(passes._watched.values()) == ["compiled", "ddp", "dp", "fsdp1", "fsdp2"]
    watched: list[tuple[Any, str]] = []
    forward: Any = SimpleNamespace(hub=None, watch_class=lambda cls, kind: watched.append((cls, kind)))
    engine: Any = ModuleType("deepspeed.runtime.engine")
    engine.DeepSpeedEngine = type("DeepSpeedEngine", (), {})
    wrapper = next(one for one in wrapper_forwards(forward) if one.module == engine.__name__)
    wrapper.install(engine)
    wrapper.install(engine)
    assert watched == [(engine.DeepSpeedEngine, "deepspeed")]


@pytest.mark.torch
def test_a_call_without_gradients_is_no_forward_pass_once_an_optimizer_has_stepped() -> None:
    torch, phases = pytest.importorskip("torch"), list[str]()
    begin: Any = lambda *_: phases.append("forward") or True  # noqa: E731
    hub = make_hub(observed=SimpleNamespace(saw_root=lambda *_: None), begin=begin, tracker=SimpleNamespace(index=1))
    with installed(ForwardPasses(hub), torch) as forward:
        forward.step_ended(0)  # no more roots are learnt
        model = type("Model", (torch.nn.Linear,), {})(2, 2)
        forward.watch_class(type(model), "module")
        called = {}
        for name, stepped in (("before", False), ("after", True)):
            if stepped:
                assert not forward.optimizer_stepped()
            for mode in (torch.no_grad, torch.inference_mode, torch.enable_grad):
                phases.clear()
                with mode():
                    model(torch.zeros(1, 2))
                called[name, mode] = len(phases)
        assert [*called.values()] == [1, 1, 1, 0, 0, 1]


@pytest.mark.torch
@pytest.mark.parametrize(("kinds", "updates", "needs", "calls"), [
    (("module", "ddp"), False, False, 0),  # a teacher
    (("module", "ddp"), True, False, 1),  # another model that is trained
    (("module", "ddp"), False, True, 1),  # a part of the loss: gradients go through it
    (("module",), False, False, 1),  # optimizers of other frameworks hold copies of parameters
])  # fmt: skip
def test_a_model_that_no_optimizer_updates_has_no_forward_pass_beside_a_data_parallel_one(
    kinds: tuple[str, ...], updates: bool, needs: bool, calls: int
) -> None:
    torch, phases = pytest.importorskip("torch"), list[str]()
    begin: Any = lambda *_: phases.append("forward") or True  # noqa: E731
    model = type("Model", (torch.nn.Linear,), {})(2, 2)
    optimizers = [torch.optim.SGD((model if updates else torch.nn.Linear(2, 2)).parameters())]
    seen = SimpleNamespace(
        saw_root=lambda *_: None,
        optimizers={0: None},
        living_optimizers=lambda: optimizers,
        models=lambda: [(kind, model) for kind in kinds],
    )
    with installed(ForwardPasses(make_hub(observed=seen, begin=begin, tracker=SimpleNamespace(index=5))), torch) as it:
        it.step_ended(0)
        it.watch_class(type(model), "module")
        it.optimizer_stepped()
        model(torch.zeros(1, 2, requires_grad=needs))
    assert len(phases) == calls


TICKS_NS = 20e6  # the kernel books a tick at a time


def watching() -> CpuContention:
    hub: Any = SimpleNamespace()
    waits = CpuContention(hub)
    waits.install(ModuleType("torch"))
    return waits


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Counters of the kernel that the test sets."""
    monkeypatch.setattr(cpu_waits, "_TASKS", str(tmp_path))
    return tmp_path


def count(tasks: Path, thread: int, on_cpu: int, waited: int) -> None:
    (tasks / str(thread)).mkdir(exist_ok=True)
    (tasks / str(thread) / "schedstat").write_text(f"{on_cpu} {waited} 7\n")


def test_a_thread_of_the_script_that_computes_is_named_and_its_waits_are_not_the_trainings(tasks: Path) -> None:
    waits, release = watching(), threading.Event()
    spinning = threading.Thread(target=release.wait, name="spins", daemon=True)
    spinning.start()
    try:
        me, other = threading.get_native_id(), spinning.native_id
        assert other is not None
        count(tasks, me, 0, 0)
        count(tasks, other, 0, 0)
        waits.window_opened(3, 7)
        count(tasks, me, 10_000, 300)
        count(tasks, other, 20_000, 7_000)
        waits.window_closed()
    finally:
        release.set()
        spinning.join()
    (window,) = waits.recorded()["cpu_waits"]["windows"]
    assert window["waited_ns"] == 300 and window["beside"] == [{"name": "spins", "cpu_ns": 20_000}]


def test_the_longest_wait_of_a_thread_that_computes_counts_where_the_machine_counts(tasks: Path) -> None:
    waits = watching()
    assert waits.recorded() == {"cpu_waits": None}
    waits.window_opened(3, 7)
    waits.window_closed()
    assert waits.recorded() == {"cpu_waits": None}
    me, waits = threading.get_native_id(), watching()
    count(tasks, me, 1_000, 100)
    count(tasks, me + 1, 500, 5_000)
    waits.window_opened(3, 7)
    count(tasks, me, 11_000, 400)
    count(tasks, me + 1, 9_500, 5_900)  # computes with the training thread
    count(tasks, me + 2, 10, 80_000)  # hardly runs: nobody waits for it
    waits.window_closed()
    recorded = waits.recorded()["cpu_waits"]
    (window,) = recorded["windows"]
    assert (window["cpu_ns"], window["waited_ns"]) == (10_000, 900)
    assert (recorded["run"]["cpu_ns"], recorded["run"]["waited_ns"]) == (10_000, 900)


def test_cpu_time_of_the_process_its_children_and_the_machine_is_read() -> None:
    waits, spin = watching(), "import time\nwhile time.process_time() < 0.3: pass"
    waits.window_opened(3, 7)
    subprocess.run([sys.executable, "-c", spin], check=True)
    run = waits.recorded()["cpu_waits"]["run"]
    assert 0.25e9 < run["process_ns"] <= run["machine_ns"] + TICKS_NS


def test_threads_listed_after_one_that_has_ended_are_counted(tasks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    me, waits = threading.get_native_id(), watching()
    count(tasks, me, 1_000, 100)
    monkeypatch.setattr(cpu_waits.os, "listdir", lambda _: ["7", str(me)])
    waits.window_opened(3, 7)
    count(tasks, me, 11_000, 400)
    waits.window_closed()
    assert waits.recorded()["cpu_waits"]["run"]["cpu_ns"] == 10_000


@pytest.mark.skipif(not os.path.exists("/proc/self/schedstat"), reason="the kernel counts no run delay")
def test_the_real_counters_follow_what_the_process_does() -> None:
    waits = watching()
    waits.window_opened(3, 7)
    until = time.thread_time() + 0.1
    while time.thread_time() < until:
        pass
    waits.window_closed()
    (window,) = waits.recorded()["cpu_waits"]["windows"]
    assert 80e6 <= window["cpu_ns"] <= window["dur_ns"] + TICKS_NS
    assert window["cpu_ns"] + window["waited_ns"] <= window["dur_ns"] + 2 * TICKS_NS
