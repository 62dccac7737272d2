"""Saves and loads of state: what belongs together is one pause, and only what holds up the training is one."""

import threading
from io import BytesIO
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hubs import installed, make_hub, on_another_thread

from ddprof.capture.files.step import DATA, REST
from ddprof.capture.instruments.checkpoint import DistributedCheckpoint, TorchSave


def of_a_job() -> Any:
    """A hub with a tracker, of which nobody knows which thread trains."""
    return make_hub(tracker=SimpleNamespace(last_end_ns=0, phase=REST), observed=SimpleNamespace(training_thread=None))


class Job:
    """A job with a `torch.save` that takes as long as it is told, and a clock of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns = 1_000
        monkeypatch.setattr("ddprof.capture.instruments.checkpoint.time.time_ns", lambda: self.now_ns)
        self.hub = of_a_job()
        self.tracker, self.observed = self.hub.tracker, self.hub.observed
        self.torch: Any = ModuleType("torch")
        self.torch.save = self.torch.load = self.wait
        TorchSave(self.hub).install(self.torch)
        self.dcp: Any = ModuleType("torch.distributed.checkpoint")
        self.dcp.save = lambda files: [self.torch.save(5) for _ in range(files)]
        DistributedCheckpoint(self.hub).install(self.dcp)

    def wait(self, ns: int) -> None:
        self.now_ns += ns

    def phase(self, ns: int) -> None:
        self.tracker.last_end_ns = self.now_ns

    @property
    def pauses(self) -> list[tuple[str, int, int]]:
        return [(one["what"], one["dur_ns"], one["calls"]) for one in self.hub.journal.checkpoints]


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Job:
    return Job(monkeypatch)


@pytest.mark.parametrize(
    ("calls", "pauses"),
    [
        ([("save", 100), ("wait", 10)] * 3, [("torch.save", 320, 3)]),
        ([("save", 100), ("wait", 10), ("phase", 0), ("save", 100)], [("torch.save", 100, 1)] * 2),
        ([("save", 100), ("wait", 5_000), ("save", 100)], [("torch.save", 100, 1)] * 2),
        ([("save", 100), ("load", 100)], [("torch.save", 100, 1), ("torch.load", 100, 1)]),
        ([("distributed", 40)], [("torch.distributed.checkpoint.save", 200, 1)]),
    ],
    ids=["one after another", "a phase between", "a break longer than the writing", "a load", "whatever it calls"],
)
def test_what_belongs_is_one_pause(job: Job, calls: list[tuple[str, int]], pauses: list[tuple[str, int, int]]) -> None:
    saves = {"save": job.torch.save, "load": job.torch.load, "distributed": job.dcp.save}
    for what, ns in calls:
        (saves | {"wait": job.wait, "phase": job.phase})[what](ns)
    assert job.pauses == pauses


def test_what_a_loader_reads_is_no_pause(job: Job) -> None:
    job.tracker.phase = DATA
    job.torch.load(5)
    job.tracker.phase = REST
    assert job.pauses == []
    job.torch.load(5)
    assert job.pauses == [("torch.load", 5, 1)]


def test_only_the_thread_that_trains_has_pauses_whichever_it_is(job: Job) -> None:
    job.observed.training_thread = threading.get_ident()
    on_another_thread(job.torch.save, 100)
    assert job.pauses == []

    def train() -> None:
        job.observed.training_thread = threading.get_ident()
        job.torch.save(100)

    on_another_thread(train)
    assert job.pauses == [("torch.save", 100, 1)]


@pytest.mark.torch
def test_a_real_distributed_checkpoint_of_many_tensors_is_one_save(tmp_path: Any) -> None:
    torch, dcp = pytest.importorskip("torch"), pytest.importorskip("torch.distributed.checkpoint")
    hub = of_a_job()
    with installed(TorchSave(hub), torch), installed(DistributedCheckpoint(hub), dcp):
        dcp.save({f"weight{index}": torch.zeros(4) for index in range(20)}, checkpoint_id=tmp_path / "state")
        torch.save({"epoch": 1}, BytesIO())
    assert [one["what"] for one in hub.journal.checkpoints][:1] == ["torch.distributed.checkpoint.save"]
    assert sum(one["calls"] for one in hub.journal.checkpoints) == 2
