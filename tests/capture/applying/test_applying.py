"""Every setting on every workload with what it sets trains to the same bits, or a line says why it is not applied."""

import json
from pathlib import Path
from typing import Any

import pytest
import runs
from runs import REPO, SCRIPTS, TWO_RANKS, good_run

from ddprof.settings import catalogue

pytestmark = [pytest.mark.torch, pytest.mark.slow]
STEPS = "20"
VALUES = {
    catalogue.LOADER: (
        *("num_workers=2", "prefetch_factor=4", "pin_memory=true", "persistent_workers=true"),
        *("multiprocessing_context=spawn", "multiprocessing_context=fork", "multiprocessing_context=forkserver"),
    ),
    catalogue.DDP: (
        *("bucket_cap_mb=1", "bucket_cap_mb=100", "first_bucket_mb=0.05", "gradient_as_bucket_view=true"),
        "static_graph=true",
        *("broadcast_buffers=false", "find_unused_parameters=false"),
    ),
    catalogue.FSDP2: ("reshard_after_forward=true", "reshard_after_forward=false"),
    catalogue.PREFETCHING: ("forward_prefetch_units=2", "backward_prefetch_units=2"),
    catalogue.COMM_HOOK: ("gradient_compression=bf16",),
    catalogue.AUTOCAST: ("autocast=bf16",),
    catalogue.COMPILE: ("compile=true",),
    catalogue.OPTIMIZER: ("fused=true", "foreach=true", "foreach=false"),
    catalogue.ZERO_GRAD: ("set_to_none=true",),
    catalogue.DEEPSPEED: ("overlap_comm=true", "reduce_bucket_size=100000", "allgather_bucket_size=100000"),
    catalogue.PROCESS: (
        *("gc_interval=5", "omp_num_threads=2", "cpu_affinity=per-rank", "expandable_segments=true", "tf32=true"),
        *("NCCL_PROTO=Simple", "NCCL_MAX_NCHANNELS=8", "NCCL_NVLS_ENABLE=0"),
    ),
}
# Another kernel may round the last bit otherwise: said in the catalogue.
NUMBERS = (name for name, setting in catalogue.CATALOGUE.items() if setting.effect is catalogue.Effect.NUMBERS)
ROUNDED = {"fused", "foreach", *NUMBERS}
ALL = (catalogue.LOADER, catalogue.OPTIMIZER, catalogue.ZERO_GRAD, catalogue.PROCESS)
WRAPPED = (catalogue.AUTOCAST, catalogue.COMPILE)
WORKLOADS = {
    "mnist_ddp": (*ALL, catalogue.DDP, catalogue.COMM_HOOK, *WRAPPED),
    "resnet50_ddp": (*ALL, catalogue.DDP, catalogue.COMM_HOOK, *WRAPPED),
    "gpt_fsdp2": (*ALL, catalogue.FSDP2, catalogue.PREFETCHING, *WRAPPED),
    "bert_accelerate": (*ALL, catalogue.DDP, catalogue.COMM_HOOK, *WRAPPED),
    "deepspeed_zero": (*ALL, catalogue.DEEPSPEED),
}
# Workers and their settings on a loader that has some.
WITH_WORKERS = ("prefetch_factor", "persistent_workers", "multiprocessing_context")
CASES = [
    (workload, value, workers)
    for workload, targets in WORKLOADS.items()
    for target in targets
    for value in VALUES[target]
    for workers in ((0, 1) if value.startswith(WITH_WORKERS) else (0,))
]


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling ResNet-50 for both ranks takes seven minutes of a busy machine."""
    monkeypatch.setattr(runs, "TIMEOUT_S", 1800)


_UNCHANGED: dict[tuple[str, int], dict[str, str]] = {}


def trained(folder: Path, workload: str, workers: int, *options: str) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Rows of both ranks on the settings that are to be applied, and their checksums."""
    folder.mkdir()
    script = [str(REPO / "workloads" / f"{workload}.py"), "--steps", STEPS, "--workers", str(workers)]
    command = [*TWO_RANKS, str(SCRIPTS / "checksummed.py"), str(folder), *script]
    run = good_run(folder / "runs", command, "--no-stacks", *options)
    rows = [row for sidecar in run.sidecars for row in sidecar.get("applied", ())]
    assert all(row["applied"] or row["why"] for row in rows), rows
    return rows, {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}


def unchanged(folder: Path, workload: str, workers: int) -> dict[str, str]:
    """The checksums of the script as it is, run once."""
    if (workload, workers) not in _UNCHANGED:
        _, sums = trained(folder, workload, workers)
        assert set(sums) == {"0", "1"}
        _UNCHANGED[workload, workers] = sums
    return _UNCHANGED[workload, workers]


@pytest.mark.parametrize(("workload", "value", "workers"), CASES, ids=lambda part: str(part))
def test_a_setting_changes_no_number_or_says_why_not(tmp_path: Path, workload: str, value: str, workers: int) -> None:
    expected = unchanged(tmp_path / "unchanged", workload, workers)
    rows, sums = trained(tmp_path / "changed", workload, workers, "--allow-numerics", "--set", value)
    assert {row["setting"] for row in rows} == {value.partition("=")[0]}
    assert len({row["applied"] for row in rows}) == 1, rows
    print(workload, value, workers, json.dumps(rows[0]), sums == expected)
    if value.partition("=")[0] not in ROUNDED:
        assert sums == expected


@pytest.mark.parametrize("workload", WORKLOADS)
def test_settings_applied_together_change_no_number(tmp_path: Path, workload: str) -> None:
    """The first value of each, in one run: what the cases above show one by one, in a fiftieth of the time."""
    wanted: dict[str, str] = {}
    for value in (value for target in WORKLOADS[workload] for value in VALUES[target]):
        name = value.partition("=")[0]
        if name not in {*ROUNDED, "first_bucket_mb"}:  # which bucket_cap_mb excludes
            wanted.setdefault(name, value)
    expected = unchanged(tmp_path / "unchanged", workload, 0)
    options = [part for value in wanted.values() for part in ("--set", value)]
    rows, sums = trained(tmp_path / "changed", workload, 0, *options)
    assert {row["setting"] for row in rows} == set(wanted), rows
    assert sum(row["applied"] for row in rows) > len(wanted)  # on two ranks: more than half of them
    assert sums == expected
