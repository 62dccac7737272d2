"""Ways a rank comes to life, and that each is found; DataLoader workers, however they are started, are no ranks."""

import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ports import free_port
from runs import REPO, SCRIPTS, TIMEOUT_S, Captured, bare_run, cli, environment, forked, good_run, script

from ddprof.capture.launcher.shim import ENV_SHIM

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


def test_through_a_shell_with_clocks_measured(tmp_path: Path) -> None:
    line = shlex.join(forked("loop.py"))
    run = good_run(tmp_path, ["bash", "-c", f"cd / && env FOO=1 {line}"], DDPROF_CLOCK="always")
    measured = [ping for ping in run.sidecars[1]["clock_pings"] if ping["method"] == "ping"]
    assert measured
    for ping in measured:  # one kernel, one clock: the true offset is 0
        assert abs(ping["offset_to_rank0_ns"]) <= ping["rtt_ns"] / 2 + 1_000 and ping["rtt_ns"] > 0


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
