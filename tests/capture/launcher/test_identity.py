"""Common name of a job on all its nodes, by launcher."""

import pytest

from ddprof.capture.launcher.identity import SharedJob, job_of

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
