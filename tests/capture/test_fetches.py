"""DataLoader workers, however they are started: their fetches are kept, and they are not taken for ranks."""

import json
import sys
from pathlib import Path

import pytest
from runs import SCRIPTS, good_run

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    "method", ["fork", *(pytest.param(name, marks=pytest.mark.slow) for name in ("spawn", "forkserver"))]
)
def test_every_fetch_is_kept(tmp_path: Path, method: str) -> None:
    run = good_run(tmp_path, [sys.executable, str(SCRIPTS / "workers.py"), method], "--skip", "2", "--steps", "3")
    assert run.manifest["ranks"] == [0]
    (path,) = run.folder.glob("*.workers.jsonl")
    fetches = [json.loads(line) for line in path.read_text().splitlines()]
    assert {fetch["worker"] for fetch in fetches} == {0, 1}
    assert all(fetch["samples"] == 4 and fetch["dur_ns"] >= 4 * 1_000_000 for fetch in fetches)
    assert all(fetch["cpu_ns"] < fetch["dur_ns"] and 0 < fetch["collate_ns"] < fetch["dur_ns"] for fetch in fetches)
    if Path("/proc/self/schedstat").exists():
        assert all(0 <= fetch["waited_ns"] + fetch["cpu_ns"] < 1.5 * fetch["dur_ns"] for fetch in fetches)
    (sidecar,) = run.sidecars
    assert sidecar["sample_indices"] == list(range(40))
    assert [batch["samples"] for batch in sidecar["batches"]] == [4] * 10
    assert [batch["elements"] for batch in sidecar["batches"]] == [16] * 10
    assert sidecar["dataloader"]["batches_per_epoch"] == 10 and sidecar["batch"]["tensors"][0]["fingerprint"]
    assert sidecar["processors"]["usable"] >= 1 and sidecar["steps_total"] == 10
    assert sidecar["dataloader"]["num_workers"] == 2
    assert 10 <= len(fetches) <= 16  # the workers run ahead of the ten steps by their prefetching
    assert sidecar["windows"][0]["first_step"] == 2
