"""Foundations of capture: its guard, the process's identity, the import hook, and a bounded journal."""

import functools
import importlib
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, create_autospec

import pytest

from ddprof.capture.guard import Guard
from ddprof.capture.identity import identify
from ddprof.capture.import_hook import ImportHook
from ddprof.capture.journal import Journal


def test_a_failure_costs_one_line_and_the_capture_interrupts_pass(capsys: pytest.CaptureFixture[str]) -> None:
    guard, work = Guard(), create_autospec(lambda: None, side_effect=KeyError("broken"))
    guarded = guard.wrap(work)
    assert guarded() is None and guarded() is None
    assert (work.call_count, len(guard.faults), guard.enabled) == (1, 1, False)
    assert capsys.readouterr().err.count("\n") == 1

    with pytest.raises(KeyboardInterrupt):
        Guard().wrap(Mock(side_effect=KeyboardInterrupt))()
    guard = Guard()
    hook = guard.wrap_hook(lambda first, second: first / (second or 1))
    assert hook(6) == 6 and hook(6, 3) == 2 and hook("x", 1) is None and hook(6, 3) is None
    assert len(guard.faults) == 1
    assert capsys.readouterr().err.count("capture is off") == 1


class Preempted(Exception):
    pass


class Leaving:
    """A signal's handler as a script may have it."""

    def handle(self, *_: object) -> None:
        raise Preempted

    __call__ = handle


@pytest.mark.parametrize("handler", [Leaving().handle, Leaving(), functools.partial(Leaving().handle, 1)])
def test_what_the_scripts_handler_raises_inside_our_code_reaches_the_script(handler: Any) -> None:
    guard, before = Guard(), signal.signal(signal.SIGUSR1, handler)
    ways = [guard.wrap(signal.raise_signal), guard.wrap_hook(lambda number, _: signal.raise_signal(number))]
    ways += [guard.shield(signal.raise_signal), lambda number: guard.attempt("", lambda: signal.raise_signal(number))]
    try:
        for timed in (False, True):
            guard.time_hooks(timed)
            for way in ways:
                with pytest.raises(Preempted):
                    way(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert guard.enabled and guard.faults == []


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}, (3, 8, 1)),
        ({"HOROVOD_RANK": "1", "HOROVOD_SIZE": "2", "RANK": "0", "WORLD_SIZE": "1"}, (1, 2, None)),
        ({"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "6"}, (5, 6, None)),
        ({"SLURM_PROCID": "2", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0"}, (2, 4, 0)),
        ({}, (0, 1, None)),
    ],
)
def test_rank_of_the_environment(variables: dict[str, str], expected: object, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setitem(sys.modules, "torch.distributed", SimpleNamespace(is_available=lambda: False))
    found = identify()
    assert (found.rank, found.world_size, found.local_rank) == expected


def test_import_hook_calls_back_after_the_import_and_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hooked_module_x.py").write_text("value = 41\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = list(sys.meta_path)
    seen: list[int] = []
    ImportHook().when_imported("hooked_module_x", lambda module: seen.append(module.value + 1))
    assert seen == []
    module = importlib.import_module("hooked_module_x")
    assert seen == [42]
    assert sys.meta_path == before
    assert module.__spec__ is not None and "exec_module" not in vars(module.__spec__.loader)
    ImportHook().when_imported("hooked_module_x", lambda module: seen.append(module.value))
    assert seen == [42, 41]


def test_batches_of_traced_steps_outlive_later_ones_and_count_once() -> None:
    """The window is early in a job; only its steps are compared between ranks."""
    journal = Journal()
    for step in range(5_000):
        journal.batch_fetched(step, 64, 640)
        journal.batch_fetched(step, 64, 640)
        if step == 9:
            journal.window_closed({"first_step": 5, "last_step": 9})
    kept = journal.batches()
    assert kept[:5] == [{"step": step, "batches": 2, "samples": 128, "elements": 1280} for step in range(5, 10)]
    assert kept[-1]["step"] == 4_999 and len(kept) < 1_000 and len({row["step"] for row in kept}) == len(kept)
    journal = Journal()
    journal.batch_fetched(0, 64, 640)
    journal.window_closed({"first_step": 0, "last_step": 0})
    journal.batch_fetched(0, 64, 640)
    assert journal.batches() == [{"step": 0, "batches": 2, "samples": 128, "elements": 1280}]
