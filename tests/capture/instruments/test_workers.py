"""Whose worker a process is."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hubs import installed, make_hub

from ddprof.capture.files.layout import host_label
from ddprof.capture.instruments import workers

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("asked", [None, 4711], ids=["forked by itself", "started by multiprocessing"])
def test_a_workers_file_is_named_after_the_rank_that_asked_for_it(
    asked: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parent of a worker under forkserver is the server."""
    pytest.importorskip("torch.utils.data")
    monkeypatch.setattr(workers, "parent_process", lambda: asked and SimpleNamespace(pid=asked))
    stem = f"rank0.{host_label()}.{asked or os.getppid()}.0"
    (tmp_path / f"{stem}.sidecar.json").touch()
    hub = make_hub(folder=tmp_path, config=SimpleNamespace(stacks=False))
    with installed(workers.LoaderWorkers(hub), sys.modules["torch"]) as instrument:
        instrument._begins(SimpleNamespace(id=0))
    assert (tmp_path / f"{stem}.workers.jsonl").exists()
