"""Ways to reach a job, by its environment or a .pth file, what prevents it, and its common name on all its nodes."""

import os
import shlex
import venv
from pathlib import Path

import pytest
from runs import bare_run, captured_environment

from ddprof.capture.launcher import pth, shim
from ddprof.capture.launcher.identity import SharedJob, job_of
from ddprof.capture.launcher.shim import ENV_SHIM, SHIM, obstacle


def test_a_jobs_environment_gains_two_variables_and_its_code_lies_where_ddprof_is_installed(tmp_path: Path) -> None:
    before = {"HOME": "/h", "PYTHONPATH": "/mine"}
    after = captured_environment(tmp_path, before)
    assert {name for name in after if after.get(name) != before.get(name)} == {"PYTHONPATH", ENV_SHIM}
    first, settings, own = after["PYTHONPATH"].split(os.pathsep)
    assert (first, own) == (str(SHIM), "/mine") and not Path(settings).exists()
    assert Path(shim.__file__).parents[1] / "shim" == SHIM
    assert sorted(path.name for path in SHIM.iterdir() if path.suffix == ".py") == ["__init__.py", "sitecustomize.py"]
    captured_environment(tmp_path / "run", {})
    assert list(tmp_path.iterdir()) == []


def test_a_package_that_pythonpath_cannot_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shim, "SHIM", tmp_path / "sample:8")
    with pytest.raises(ValueError, match=r"PYTHONPATH cannot name .*sample:8"):
        captured_environment(tmp_path, {})


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("python -I train.py", "python -I ignores PYTHONPATH"),
        ("/usr/bin/python3.11 -u -E -m train", "python -E ignores PYTHONPATH"),
        ("env A=1 python3 -X dev -W ignore -Im train", "python -I ignores PYTHONPATH"),
        ("bash -c 'cd job && python -S train.py'", "python -S leaves out sitecustomize"),
        *((line, None) for line in ("python train.py -I -E -S", "python -c 'import sys' -I", "mypython -I")),
        ("python -X importtime -Wignore -u train.py", None),
    ],
)
def test_options_that_keep_capture_out(line: str, said: str | None) -> None:
    found = obstacle(shlex.split(line))
    assert found is None if said is None else found is not None and found.startswith(said)


def test_isolated_interpreters_are_reached_by_the_pth(tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", symlinks=True)
    (site_packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    pth.install(site_packages)
    (site_packages / "sitecustomize.py").write_text("import sys; sys.own = sys.__dict__.get('own', 0) + 1\n")
    python = str(tmp_path / "venv" / "bin" / "python")
    settings = captured_environment(tmp_path / "run", {})[ENV_SHIM]
    code = "import sys; print(getattr(sys, '_ddprof_capture', None), sys.own)"

    def ask(option: str = "-I", **extra: str) -> str:
        done = bare_run([python, option, "-c", code], **extra)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.strip()

    found = f"{settings.partition('/settings/')[2]} 1"  # and the user's own sitecustomize has run once
    assert ask(**{ENV_SHIM: settings}) == found and ask("-E", **{ENV_SHIM: settings}) == found
    assert ask("-u", **captured_environment(tmp_path / "run", {})) == found  # both ways in
    assert ask() == "None 1" and ask(**{ENV_SHIM: str(tmp_path / "gone/shim/settings/x")}) == "None 1"
    pth.remove(site_packages)
    assert ask(**{ENV_SHIM: settings}) == "None 1"


TORCHRUN = "torchrun --nnodes=2 --nproc-per-node=8"
SLURM = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2"}
POD = {"MASTER_ADDR": "my-job-worker-0", "MASTER_PORT": "23456", "WORLD_SIZE": "4", "RANK": "1"}
ACCELERATE = "accelerate launch --num_machines 2 --main_process_ip h --main_process_port 5 train.py"
CLUSTER = '{"cluster": {"workerpool0": ["a"], "workerpool1": ["b", "c"]}}'


@pytest.mark.parametrize(
    ("command", "environment", "job"),
    [
        ("python train.py", {}, None),
        ("torchrun --standalone --nproc-per-node=8 train.py", {}, None),
        (f"{TORCHRUN} --rdzv-id=job42 --rdzv-endpoint=a:29500 train.py", {}, SharedJob("rdzv-job42", 2, False)),
        (f"{TORCHRUN} --rdzv_id job42 train.py", {}, SharedJob("rdzv-job42", 2, False)),
        (f"{TORCHRUN} --rdzv-endpoint=node-0:29500 train.py", {}, SharedJob("at-node-0-29500", 2, False)),
        ("torchrun --nnodes=1:4 --rdzv-endpoint=h:1 train.py", {}, SharedJob("at-h-1", 4, False)),
        (f"{TORCHRUN} --master-addr 10.0.0.1 --node-rank 1 train.py", {}, SharedJob("at-10.0.0.1-29500", 2, False)),
        (f"{TORCHRUN} --rdzv-endpoint=localhost:29500 train.py", {}, None),
        ("torchrun --nproc-per-node=2 train.py --nnodes=2 --master-addr a", {}, None),  # the script's own
        ("torchrun train.py", {"PET_NNODES": "4", "PET_RDZV_ENDPOINT": "a:1"}, SharedJob("at-a-1", 4, False)),
        (ACCELERATE, {}, SharedJob("at-h-5", 2, False)),
        ("python train.py", SLURM, SharedJob("slurm77.0", 2)),
        ("srun -n 8 python train.py", {**SLURM, "SLURM_STEP_NUM_TASKS": "1"}, None),
        ("python train.py", {"PMIX_NAMESPACE": "prte-1@2", "OMPI_COMM_WORLD_SIZE": "8"}, SharedJob("mpiprte-1-2", 8)),
        ("python train.py", POD, SharedJob("at-my-job-worker-0-23456", 4, False)),
        ("python train.py", {**POD, "WORLD_SIZE": "1"}, None),
        ("python train.py", {"TORCHELASTIC_RUN_ID": "id7", "WORLD_SIZE": "2"}, SharedJob("elastic-id7", 2, False)),
        ("train", {"SM_HOSTS": '["algo-1", "algo-2"]', "TRAINING_JOB_NAME": "j-1"}, SharedJob("sagemaker-j-1", 2)),
        ("train", {"SM_HOSTS": "x", "TRAINING_JOB_NAME": "j-1"}, SharedJob("sagemaker-j-1", None)),
        ("train", {"CLOUD_ML_JOB_ID": "5", "CLUSTER_SPEC": CLUSTER}, SharedJob("vertex-5", 3)),
    ],
)
def test_the_name_is_what_the_launcher_shares(command: str, environment: dict[str, str], job: SharedJob | None) -> None:
    assert job_of(command.split(), environment) == job
