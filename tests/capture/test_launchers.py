"""Ways a rank comes to life, each found; DataLoader workers are no ranks; and all that a normal run leaves behind."""

import importlib.util
import itertools
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ports import free_port
from runs import (
    PHASES,
    REPO,
    SCRIPTS,
    TIMEOUT_S,
    Captured,
    bare_run,
    cli,
    ddprof_run,
    environment,
    forked,
    good_run,
    script,
)

from ddprof.capture.launcher.shim import ENV_SHIM
from ddprof.capture.window.annotate import Annotator

pytestmark = pytest.mark.torch
# What a script under MPI does first: torch.distributed's names for what Open MPI says.
MPI_MAIN = """
import os, runpy, sys
os.environ["RANK"], os.environ["WORLD_SIZE"] = os.environ["OMPI_COMM_WORLD_RANK"], os.environ["OMPI_COMM_WORLD_SIZE"]
os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", sys.argv.pop(1)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def assert_two_ranks_of_twelve_steps(run: Captured) -> None:
    assert run.manifest["ranks"] == [0, 1] and sorted(run.traces) == [0, 1]
    assert [(sidecar["steps_total"], sidecar["state"]) for sidecar in run.sidecars] == [(12, "exit")] * 2


@pytest.mark.parametrize("method", [pytest.param("spawn", marks=pytest.mark.slow), "fork"])
def test_multiprocessing(tmp_path: Path, method: str) -> None:
    assert_two_ranks_of_twelve_steps(good_run(tmp_path, [sys.executable, str(SCRIPTS / "spawned.py"), method]))


def test_through_a_shell(tmp_path: Path) -> None:
    line = shlex.join(forked("loop.py"))
    run = good_run(tmp_path, ["bash", "-c", f"cd / && env FOO=1 {line}"])
    assert run.manifest["ranks"] == [0, 1] and sorted(run.traces) == [0, 1]


@pytest.mark.slow
def test_commands_of_the_documented_manifests(tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    blocks = re.findall(r"```yaml\n(.*?)```", (REPO / "docs" / "launchers.md").read_text(encoding="utf-8"), re.DOTALL)
    job, train_job = (yaml.safe_load(block) for block in blocks)
    assert job["kind"] == "PyTorchJob" and train_job["kind"] == "TrainJob"
    pod = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    assert pod["containers"][0]["volumeMounts"][0]["name"] == pod["volumes"][0]["name"]
    for number, command in enumerate((pod["containers"][0]["command"], train_job["spec"]["trainer"]["command"])):
        place = {"/runs/$(JOB_NAME)": str(tmp_path / "given"), "s3://bucket/runs": f"file://{tmp_path}/store"}
        line = cli(*(place.get(word, word) for word in command[2:]))
        line[line.index("torchrun") :] = script("loop.py")
        done = bare_run(line, HOME="/proc/none", TMPDIR=str(tmp_path))
        assert done.returncode == 0, done.stdout + done.stderr
        (folder,) = [tmp_path / "given"] if number == 0 else (tmp_path / "store").iterdir()
        assert len(list(folder.glob("*.pt.trace.json.gz"))) == 2


@pytest.mark.slow
@pytest.mark.parametrize("outside", ["ddprof", "mpirun"])
def test_mpirun(tmp_path: Path, outside: str) -> None:
    if shutil.which("mpirun") is None:
        pytest.skip("mpirun is not installed")
    python = [sys.executable, "-c", MPI_MAIN, str(free_port()), str(SCRIPTS / "loop.py")]
    ours = cli("--out", str(tmp_path), "--name", "t", "--")
    launcher = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-x", "PYTHONPATH", "-x", ENV_SHIM, "-np", "2"]
    line = [*ours, *launcher, *python] if outside == "ddprof" else [*launcher[:3], *launcher[-2:], *ours, *python]
    base = {name: value for name, value in environment().items() if not name.startswith(("OMPI_", "PMIX_"))}
    done = subprocess.run(line, cwd=REPO, env=base, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = [path for path in tmp_path.iterdir() if not path.is_symlink()]
    assert sorted(path.name.split(".")[0] for path in folder.glob("*.pt.trace.json.gz")) == ["rank0", "rank1"]


# What each framework's own launcher needs to start two ranks on CPU, and the script's arguments.
FRAMEWORK_LAUNCHERS = {
    "accelerate": "accelerate.commands.launch --multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no"
    " --dynamo_backend no --main_process_port 0 SCRIPT accelerate",
    "deepspeed": "deepspeed.launcher.runner --num_gpus 2 --no_local_rank --master_port PORT SCRIPT deepspeed 1",
}


@pytest.mark.slow
@pytest.mark.parametrize("package", FRAMEWORK_LAUNCHERS)
def test_launchers_of_frameworks(tmp_path: Path, package: str) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    known = {"SCRIPT": str(SCRIPTS / "external.py"), "PORT": str(free_port())}
    command = [sys.executable, "-m", *(known.get(word, word) for word in FRAMEWORK_LAUNCHERS[package].split())]
    forced = {"ACCELERATE_USE_CPU": "true", "DS_ACCELERATOR": "cpu"}
    assert_two_ranks_of_twelve_steps(good_run(tmp_path, command, "--skip", "3", "--steps", "3", **forced))


SLOWLY_STARTED = [pytest.param(method, marks=pytest.mark.slow) for method in ("spawn", "forkserver")]


@pytest.mark.parametrize("method", ["fork", *SLOWLY_STARTED])
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


def test_the_manifest_the_files_the_code_and_the_last_line_are_those_of_two_ranks(healthy: Captured) -> None:
    assert healthy.code == 0 and "finished 14" in healthy.output
    last = healthy.output.strip().splitlines()[-1]
    assert re.search(r"2 traces of 2 ranks in .*, overhead [\d.]+ % of a step .*next: ddprof analyze ", last)
    manifest = healthy.manifest
    said = {"schema": "ddprof.run/1", "exit_code": 0, "ranks": [0, 1], "missing_ranks": [], "world_size": 2}
    assert {key: manifest[key] for key in said} == said and not [n for n in manifest["disabled"] if "in C" not in n]
    assert manifest["overhead"]["bare_step_ns"] > 0 and set(manifest["hosts"]) == {"0", "1"}
    names = {re.sub(r"\.[^.]+\.\d+\.0\.", ".", path.name) for path in healthy.folder.iterdir()}
    kinds = ("0.pt.trace.json.gz", "0.fr.json", "sidecar.json", "stacks.jsonl")
    assert names == {"manifest.json", *(f"rank{rank}.{kind}" for rank in (0, 1) for kind in kinds)}
    assert len(list(healthy.folder.iterdir())) == len(names)


def test_every_step_is_counted_with_its_phases(healthy: Captured) -> None:
    for sidecar in healthy.sidecars:
        steps = sidecar["steps"]
        assert [step["index"] for step in steps] == list(range(14))
        for step in steps:
            phases = [step[f"{phase}_ns"] for phase in PHASES]
            assert all(phase > 0 for phase in phases) and sum(phases) <= step["end_ns"] - step["start_ns"]
        assert all(later["start_ns"] >= step["end_ns"] for step, later in itertools.pairwise(steps))
        assert [step["index"] for step in steps if step["profiled"]] == [5, 6, 7, 8, 9]


def test_window_trace_holds_marks_and_phases_whose_times_are_the_sidecars(healthy: Captured) -> None:
    for rank, sidecar in enumerate(healthy.sidecars):
        (window,) = sidecar["windows"]
        assert (window["first_step"], window["last_step"]) == (5, 9) and window["export_pause_ns"] > 0
        assert (healthy.folder / window["trace_path"]).is_file()
        names = healthy.names(rank)
        assert all(names[f"ProfilerStep#{step}"] == 1 for step in range(5, 10)) and healthy.phases(rank) == [5] * 4
    trace = healthy.traces[0]
    base_ns = int(trace["baseTimeNanoseconds"])
    steps = {step["index"]: step for step in healthy.sidecars[0]["steps"]}
    marks = [event for event in trace["traceEvents"] if event.get("name", "").startswith("ProfilerStep#")]
    assert len(marks) == 5
    for mark in marks:
        index = int(mark["name"].split("#")[1])
        assert steps[index - 1]["start_ns"] < base_ns + float(mark["ts"]) * 1e3 < steps[index]["end_ns"]


def test_flight_recorder_names_every_bucket_of_the_window(healthy: Captured) -> None:
    for rank in (0, 1):
        (path,) = healthy.folder.glob(f"rank{rank}.*.fr.json")
        dump = json.loads(path.read_text())
        window = dump["ddprof"]  # the dump may hold what was created up to 2 ms before or after
        reductions = [entry for entry in dump["entries"] if entry["profiling_name"] == "gloo:all_reduce"]
        inside = [entry for entry in reductions if window["start_ns"] <= entry["time_created_ns"] <= window["end_ns"]]
        assert len(inside) == len({entry["collective_seq_id"] for entry in inside}) == 5  # one bucket, five steps
        assert not any("frames" in entry and entry["frames"] for entry in dump["entries"])


def test_sidecar_describes_the_job(healthy: Captured) -> None:
    for rank, sidecar in enumerate(healthy.sidecars):
        assert sidecar["state"] == "exit"
        assert (sidecar["rank"], sidecar["world_size"], sidecar["backend"]) == (rank, 2, "gloo")
        assert sidecar["process_groups"][0]["ranks"] == [0, 1] and sidecar["parallelism"] == ["ddp"]
        weights = 16 * 32 + 32 + 32 * 4 + 4
        assert (sidecar["ddp"]["bucket_cap_mb"], sidecar["ddp"]["bucket_sizes_bytes"]) == (25.0, [weights * 4])
        assert (sidecar["parameters"]["count"], sidecar["parameters"]["dtype"]) == (weights, "float32")
        assert sidecar["optimizer"]["class"] == "AdamW" and sidecar["batch"]["tensors"][0]["shape"] == [8, 16]
        loader = sidecar["dataloader"]
        assert (loader["batch_size"], loader["dataset_length"]) == (8, 512)
        assert loader["sampler"]["sharded"] is False  # the script forgot its DistributedSampler
        assert all("extension in C" in note for note in sidecar["notes"])
        assert "trial" not in sidecar and sidecar["overhead"]["own_ns_per_step"] > 0


def test_what_only_capture_can_know(healthy: Captured) -> None:
    first, second = healthy.sidecars
    assert first["sample_indices"][:112] == list(range(112))
    assert first["sample_indices"] == second["sample_indices"]  # both ranks read the same samples
    ready = first["gradient_ready"]
    step = first["steps"][ready["step"]]
    assert ready["step"] == 9
    assert [entry["name"] for entry in ready["parameters"]][-1].startswith("0.")  # the first layer is ready last
    assert {entry["name"] for entry in ready["parameters"]} == {"0.weight", "0.bias", "2.weight", "2.bias"}
    assert all(step["start_ns"] < entry["ready_ns"] < step["end_ns"] for entry in ready["parameters"])


@pytest.mark.parametrize("binding", [True, False], ids=["torch's binding", "record_function"])
def test_ranges_are_user_annotations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, binding: bool) -> None:
    """Device traces mirror user annotations only: an operator of that name would not do."""
    import torch

    if not binding:
        monkeypatch.delattr(torch.autograd, "_record_function_with_args_enter")
    annotator = Annotator()
    assert annotator.open("unseen") is None
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        annotator.switch(True)
        opened = annotator.open("ddprof::forward")
        torch.ones(4) + 1
        assert opened is not None
        opened.close()
        opened.close()
    profiler.export_chrome_trace(str(tmp_path / "t.json"))
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    (mine,) = [event for event in events if event.get("name") == "ddprof::forward"]
    (inner,) = [event for event in events if event.get("name") == "aten::add"]
    assert mine["cat"] == "user_annotation"
    assert mine["ts"] <= inner["ts"] <= inner["ts"] + inner["dur"] <= mine["ts"] + mine["dur"]


def test_losses_are_bitwise_equal_without_capture(healthy: Captured, tmp_path: Path) -> None:
    bare = bare_run(forked("loop.py", "--losses", str(tmp_path / "losses")))
    assert bare.returncode == 0, bare.stdout + bare.stderr
    losses = (tmp_path / "losses").read_text()
    assert losses == (healthy.folder.parent / "losses").read_text() and losses.count("\n") == 14


@pytest.mark.slow
@pytest.mark.parametrize("wrapper", ["ddp", "fsdp2"])
def test_losses_are_bitwise_equal_with_many_windows(tmp_path: Path, wrapper: str) -> None:
    options = ("--wrapper", wrapper, "--steps", "50", "--losses")
    bare, seen = (forked("loop.py", *options, str(tmp_path / name)) for name in "bs")
    alone = bare_run(bare)
    assert alone.returncode == 0, alone.stdout + alone.stderr
    run = good_run(tmp_path / "runs", seen, "--every", "10")
    assert len(run.sidecars[0]["windows"]) == 5 and (tmp_path / "b").read_text().count("\n") == 50
    assert (tmp_path / "s").read_text() == (tmp_path / "b").read_text()


def test_only_chosen_ranks_trace_and_without_stacks_none_are_written(tmp_path: Path) -> None:
    """The phase timers are those in Python."""
    options = ("--ranks", "1", "--skip", "2", "--steps", "3", "--no-stacks")
    run = good_run(tmp_path, forked("loop.py"), *options, DDPROF_NATIVE="0")
    assert sorted(run.traces) == [1] and [len(sidecar["steps"]) for sidecar in run.sidecars] == [14, 14]
    assert not list(run.folder.glob("*.stacks.jsonl")) and run.manifest["options"]["stacks"] is False
    assert all(sidecar["stacks"] is None for sidecar in run.sidecars)
    assert run.manifest["overhead"]["stacks_frac"] is None


def test_process_that_never_trains_leaves_nothing(tmp_path: Path) -> None:
    run = ddprof_run(tmp_path, [sys.executable, "-c", "import torch; print(torch.ones(2).sum().item())"])
    assert run.code == 0 and "2.0" in run.output and "no training process was seen" in run.output
    assert not list(run.folder.glob("rank*"))
