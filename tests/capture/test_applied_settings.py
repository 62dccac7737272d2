"""Real jobs, their scripts as they are, made with other settings: the same bits, or a line says why not."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import runs
from runs import REPO, SCRIPTS, TWO_RANKS, Captured, ddprof_run, forked, good_run

from ddprof.analyzers.engine import analyze
from ddprof.report.json.contract import from_contract, to_contract
from ddprof.report.markdown import render_markdown
from ddprof.report.redaction.redact import redacted
from ddprof.report.text import render_text
from ddprof.settings import catalogue

pytestmark = pytest.mark.torch


def _workload(folder: Path, name: str, *options: str) -> tuple[Captured, str]:
    """Ten steps of a workload with two ranks, and its losses in hexadecimal."""
    command = forked(str(REPO / "workloads" / f"{name}.py"), "--steps", "10", "--losses", str(folder / "losses"))
    run = good_run(folder / "runs", command, "--skip", "2", "--steps", "3", "--no-stacks", *options)
    return run, (folder / "losses").read_text()


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The losses of the script as it is."""
    return _workload(tmp_path_factory.mktemp("as_it_is"), "mnist_ddp")[1]


def test_settings_are_applied_recorded_and_shown_and_change_no_number(expected: str, tmp_path: Path) -> None:
    fixes = tmp_path / "FIXES.toml"
    fixes.write_text(
        'schema = "ddprof.fixes/1"\n[[fix]]\nset = { num_workers = 1, persistent_workers = true }\n'
        '[[fix]]\nfinding = "comm.latency_bound"\nset = { bucket_cap_mb = 50 }\n'
    )
    stated = ["gc_interval=4", "NCCL_PROTO=Simple", "omp_num_threads=2", "reshard_after_forward=false"]
    options = [part for text in stated for part in ("--set", text)]
    run, losses = _workload(tmp_path, "mnist_ddp", "--apply", str(fixes), *options)
    assert losses == expected
    by_name = {row["setting"]: row for row in run.manifest["applied"]}
    applied = {name for name, row in by_name.items() if row["applied"]}
    assert applied == {"num_workers", "persistent_workers", "bucket_cap_mb", "gc_interval"}
    assert all(row["ranks"] == [0, 1] for row in by_name.values())
    assert by_name["omp_num_threads"]["why"] == "the script sets the number of threads to 1"
    assert "no CUDA device" in by_name["NCCL_PROTO"]["why"]
    assert "made no FullyShardedDataParallel or fully_shard" in by_name["reshard_after_forward"]["why"]
    assert run.sidecars[0]["dataloader"]["num_workers"] == 1 and run.sidecars[1]["ddp"]["bucket_cap_mb"] == 50
    (line,) = [line for line in run.output.splitlines() if line.startswith("ddprof: applied: ")]
    assert "num_workers=1 at workloads/loading.py:" in line and "gc_interval=4; not applied: " in line
    (report,) = analyze([run.folder])
    for screen in (render_text(report), render_markdown(report).replace("\\", "")):
        words = screen.replace("\n", " ")
        assert "Applied by ddprof run: " in words and "num_workers=1 at workloads/loading.py:" in words
    document = json.loads(json.dumps(to_contract(report)))
    assert from_contract(document).applied == report.applied and len(report.applied) == 7
    (hidden,) = [row for row in redacted(report, b"key").applied if row.setting == "num_workers"]
    assert hidden.value == "1" and hidden.at and "loading.py" not in hidden.at


@pytest.mark.slow
def test_fully_sharded_units_keep_their_parameters(tmp_path: Path) -> None:
    _, as_it_is = _workload(tmp_path, "gpt_fsdp2", "--set", "reshard_after_forward=true")
    run, losses = _workload(tmp_path, "gpt_fsdp2", "--set", "reshard_after_forward=false")
    assert losses == as_it_is and run.sidecars[0]["fsdp"]["reshard_after_forward"] is False
    made = {(line["object"], line["function"], line["trains"]) for line in run.sidecars[0]["made"]}
    assert made == {("fully_shard", "build", False), ("optimizer", "train", False), ("DataLoader", "make_loader", True)}
    units = [row for row in run.sidecars[0]["applied"] if row["applied"]]
    assert sum(row["objects"] for row in units) == 5 and len({row["at"] for row in units}) == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--set", "num_workers=x"], "a whole number from 0 to 1024"),
        (["--set", "nothing=1"], "no setting 'nothing' can be applied"),
        (["--apply", "/nowhere/FIXES.toml"], "No such file"),
        (["--set", "fused=true", "--set", "foreach=true"], "exclude each other"),
    ],
)
def test_what_cannot_be_is_said_before_the_job_starts(tmp_path: Path, options: list[str], words: str) -> None:
    run = ddprof_run(tmp_path, ["touch", str(tmp_path / "started")], *options)
    assert run.code != 0 and words in run.output and not (tmp_path / "started").exists()


def test_precision_is_changed_only_where_that_is_allowed(tmp_path: Path) -> None:
    run = ddprof_run(tmp_path, ["env"], "--set", "tf32=true", "--set", "NCCL_PROTO=LL")
    assert "not applied: tf32=true: it changes the numbers of the training (--allow-numerics)" in run.output
    assert "NCCL_PROTO=LL\n" in run.output and "tf32" not in json.dumps(run.manifest)
    allowed = ddprof_run(tmp_path, ["env"], "--set", "tf32=true", "--allow-numerics")
    assert allowed.manifest["options"]["apply"] == ["tf32=true"]


def test_without_fixes_nothing_that_applies_them_is_imported(tmp_path: Path) -> None:
    code = "import sys, torch; print([name for name in sys.modules if 'applying' in name or 'settings.' in name])"
    run = ddprof_run(tmp_path, [sys.executable, "-c", code])
    assert "[]\n" in run.output and "apply" not in run.manifest["options"] and "applied" not in run.manifest
    code = "import sys, torch; print('_ddprof.capture.applying.applier' in sys.modules)"
    assert "True\n" in ddprof_run(tmp_path, [sys.executable, "-c", code], "--set", "gc_interval=5").output


STEPS = "20"
VALUES = {
    catalogue.LOADER: (
        *("num_workers=2", "prefetch_factor=4", "pin_memory=true", "persistent_workers=true"),
        *("multiprocessing_context=spawn", "multiprocessing_context=fork", "multiprocessing_context=forkserver"),
    ),
    catalogue.DDP: (
        *("bucket_cap_mb=1", "bucket_cap_mb=100", "first_bucket_mb=0.05", "gradient_as_bucket_view=true"),
        *("static_graph=true", "broadcast_buffers=false", "find_unused_parameters=false"),
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


@pytest.fixture
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


@pytest.mark.slow
@pytest.mark.usefixtures("patience")
@pytest.mark.parametrize(("workload", "value", "workers"), CASES, ids=lambda part: str(part))
def test_a_setting_changes_no_number_or_says_why_not(tmp_path: Path, workload: str, value: str, workers: int) -> None:
    expected = unchanged(tmp_path / "unchanged", workload, workers)
    rows, sums = trained(tmp_path / "changed", workload, workers, "--allow-numerics", "--set", value)
    assert {row["setting"] for row in rows} == {value.partition("=")[0]}
    assert len({row["applied"] for row in rows}) == 1, rows
    print(workload, value, workers, json.dumps(rows[0]), sums == expected)
    if value.partition("=")[0] not in ROUNDED:
        assert sums == expected


@pytest.mark.slow
@pytest.mark.usefixtures("patience")
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
