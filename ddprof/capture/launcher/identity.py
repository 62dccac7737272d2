"""A job name common to all its nodes, from values that their launchers share: scheduler variables, command arguments.

Standard library only: read before the job starts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

# Arguments of torchrun, accelerate and deepspeed, and torchrun's own variables for them (torch/distributed/run.py).
_RENDEZVOUS_ID = ("--rdzv-id", "--rdzv_id")
_ENDPOINT = ("--rdzv-endpoint", "--rdzv_endpoint")
_ADDRESS = ("--master-addr", "--master_addr", "--main_process_ip")
_PORT = ("--master-port", "--master_port", "--main_process_port")
_NODES = ("--nnodes", "--num_machines", "--num_nodes")
_VARIABLES = {
    "PET_RDZV_ID": _RENDEZVOUS_ID,
    "PET_RDZV_ENDPOINT": _ENDPOINT,
    "PET_MASTER_ADDR": _ADDRESS,
    "PET_MASTER_PORT": _PORT,
    "PET_NNODES": _NODES,
}
_NOT_A_JOB = ("", "none", "localhost", "127.0.0.1")  # "none" is torchrun's id where none is given


@dataclass(frozen=True)
class SharedJob:
    """A job started by several `ddprof run`. `name`: the same on all nodes. `starts`: their number, None where it is
    not known.

    `is_unique`: no other job ever has the name; else a later one may, as with an address and a port.
    """

    name: str
    starts: int | None = None
    is_unique: bool = True


def job_of(command: Sequence[str], environment: Mapping[str, str]) -> SharedJob | None:
    """The job that this `ddprof run` starts a part of; None where it starts the whole job."""
    return next((job for job in _found(command, environment) if job.starts is None or job.starts > 1), None)


def _found(command: Sequence[str], environment: Mapping[str, str]) -> Iterator[SharedJob]:
    get = environment.get
    if get("SLURM_STEP_ID") is not None:
        name = f"slurm{get('SLURM_JOB_ID', '')}.{get('SLURM_STEP_ID')}"
        yield SharedJob(name, _number(get("SLURM_STEP_NUM_TASKS", get("SLURM_NTASKS", "1"))))
    if get("PMIX_NAMESPACE"):
        yield SharedJob("mpi" + _plain(get("PMIX_NAMESPACE", "")), _number(get("OMPI_COMM_WORLD_SIZE", "1")))
    if get("TORCHELASTIC_RUN_ID", "none") not in _NOT_A_JOB:
        yield SharedJob(
            f"elastic-{_plain(get('TORCHELASTIC_RUN_ID', ''))}", _number(get("WORLD_SIZE")), is_unique=False
        )
    if get("SM_HOSTS"):
        yield SharedJob(f"sagemaker-{_plain(get('TRAINING_JOB_NAME', ''))}", _listed(get("SM_HOSTS", "")))
    if get("CLOUD_ML_JOB_ID"):
        yield SharedJob(f"vertex-{_plain(get('CLOUD_ML_JOB_ID', ''))}", _workers(get("CLUSTER_SPEC", "")))
    yield from _of_launcher(command, environment)


def _of_launcher(command: Sequence[str], environment: Mapping[str, str]) -> Iterator[SharedJob]:
    """The job of torchrun and its like over several nodes, or of scripts that get a master address themselves."""
    stated = {names: environment[variable] for variable, names in _VARIABLES.items() if environment.get(variable)}
    stated |= {names: value for names in _VARIABLES.values() if (value := _argument(command, names))}
    nodes = _number(stated.get(_NODES, "1").rpartition(":")[2])
    rendezvous_id = stated.get(_RENDEZVOUS_ID, "")
    if nodes != 1 and rendezvous_id not in _NOT_A_JOB:
        yield SharedJob(f"rdzv-{_plain(rendezvous_id)}", nodes, is_unique=False)
    address, port = stated.get(_ADDRESS, ""), stated.get(_PORT, "29500")
    endpoint = stated.get(_ENDPOINT) or (f"{address}:{port}" if address else "")
    if nodes != 1 and endpoint.partition(":")[0] not in _NOT_A_JOB:
        yield SharedJob(f"at-{_plain(endpoint)}", nodes, is_unique=False)
    master = environment.get("MASTER_ADDR", "")
    if master not in _NOT_A_JOB and environment.get("WORLD_SIZE") and environment.get("RANK"):
        name = f"at-{_plain(master)}-{environment.get('MASTER_PORT', '29500')}"
        yield SharedJob(name, _number(environment["WORLD_SIZE"]), is_unique=False)


def _argument(command: Sequence[str], names: Sequence[str]) -> str:
    """The value of a launcher option: its next word, or the text behind "="; "" where it is not given."""
    for at, word in enumerate(command):
        if word.endswith(".py"):
            return ""  # what follows is the script's
        name, sign, value = word.partition("=")
        if name in names:
            return value if sign else "".join(command[at + 1 : at + 2])
    return ""


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-.")[:80]


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() and len(text) < 9 else None


def _listed(text: str) -> int | None:
    with suppress(ValueError):
        listed = json.loads(text)
        return len(listed) if isinstance(listed, list) else None
    return None


def _workers(text: str) -> int | None:
    """Replicas of Vertex AI's CLUSTER_SPEC."""
    with suppress(ValueError, AttributeError, TypeError):
        return sum(len(hosts) for hosts in json.loads(text)["cluster"].values())
    return None
