"""The run folder, before the job starts: created, or joined by several `ddprof run` of one job.

All nodes of a job share its name, from values that their launchers share: scheduler variables, command arguments.
Standard library only: read before the job starts.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ddprof.capture.files.layout import MANIFEST, host_label
from ddprof.capture.files.storage import read_object, write_bytes
from ddprof.untrusted.secrets import masked

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


LATEST = "latest"
# torchrun waits so long for its nodes (`join_timeout` of torch/distributed/elastic/rendezvous): all begin within it.
NODES_JOIN_S = 600
_MOST_OF_ONE_NAME = 1000
_MODE = 0o700  # of a folder of this user alone


@dataclass(frozen=True)
class RunFolder:
    """Folder of a run. `fallback_reason`: why it is not the requested one."""

    path: Path
    manifest: Path
    fallback_reason: str | None = None


def create(
    parent: Path | None, name: str, now_s: float, job: SharedJob | None = None, shared: bool = False
) -> RunFolder:
    """Create `<parent>/<utc>-<name>/` and point `latest` at it; parent None: below this user's temporary folder.
    `shared`: with the mode of any folder, else private to this user; files follow their folder.

    The parts of one `job` meet in `<parent>/<name>-<job>/`, where they see the parent.

    Where the parent cannot be written the run goes to that folder as well, because a read-only directory must not stop
    a job. Raises OSError if that fails, too.
    """
    label = re.sub(r"[^A-Za-z0-9._-]+", "-", masked(name)).strip("-.") or "run"
    reasons = []
    if parent is not None:
        try:
            return _create(parent, label, now_s, job, shared)
        except OSError as error:
            reasons.append(f"{parent} cannot be written ({error.strerror})")
    temporary, refused = private_folder()
    reasons += [refused] if refused else []
    return replace(_create(temporary, label, now_s, job, shared), fallback_reason="; ".join(reasons) or None)


def _create(parent: Path, label: str, now_s: float, job: SharedJob | None, shared: bool) -> RunFolder:
    if job is not None:
        folder = _meet(parent, f"{label}-{job.name}", job, now_s, shared)
        _point_latest(parent, folder.path)
        return folder
    path = _make(parent, f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(now_s))}-{label}", shared)
    _point_latest(parent, path)
    return RunFolder(path, path / MANIFEST)


def _meet(parent: Path, name: str, job: SharedJob, now_s: float, shared: bool) -> RunFolder:
    """The folder of a job. A folder of that name may belong to an earlier job, one that has ended, is full or was
    killed: then the next one is `<name>-2`.
    """
    parent.mkdir(parents=True, exist_ok=True)
    for number in range(1, _MOST_OF_ONE_NAME):
        path = parent / (name if number == 1 else f"{name}-{number}")
        if job.is_unique or not path.exists() or _expects_more(path, job, now_s):
            return join(path, shared)
    raise FileExistsError(17, "a thousand jobs had that name", name)


def _expects_more(path: Path, job: SharedJob, now_s: float) -> bool:
    """True where the job of a folder runs and some of its parts are still missing."""
    manifests = [path / MANIFEST, *path.glob("manifest.*.*.json")]
    if job.starts is not None and len(manifests) >= job.starts:
        return False
    try:
        begun_s, text = manifests[0].stat().st_mtime, manifests[0].read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True  # made a moment ago
    is_ended = '"ended_ns"' in text
    return not is_ended and now_s - begun_s <= NODES_JOIN_S


def join(path: Path, shared: bool = False) -> RunFolder:
    """Use this very folder, created if missing: several `ddprof run` of one job write into it. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(_mode(shared), exist_ok=True)
    manifest = path / MANIFEST
    try:
        # Exactly one of them gets the main manifest and leads: it asks for windows.
        manifest.open("x", encoding="utf-8").close()
    except FileExistsError:
        if not _took_over(manifest):
            manifest = path / f"manifest.{host_label()}.{os.getpid()}.json"
    return RunFolder(path.resolve(), manifest)


def _took_over(manifest: Path) -> bool:
    """True where the folder's job had ended, and this is the one of the next attempt that emptied its manifest.

    They claim it by a link of a fixed name, kept until it is empty: what the link then shows is nobody else's.
    """
    claim = manifest.with_name(f".{manifest.name}.tmp")
    try:
        if "ended_ns" not in read_object(manifest):
            return False
        os.link(manifest, claim)
        try:
            is_ended = "ended_ns" in read_object(claim)
            if is_ended:
                write_bytes(manifest, b"")
        finally:
            claim.unlink(missing_ok=True)
    except (OSError, ValueError):  # being written, claimed by another, or on a file system without links
        return False
    return is_ended


def _mode(shared: bool) -> int:
    return 0o777 if shared else _MODE


def _make(parent: Path, folder_name: str, shared: bool) -> Path:
    parent.mkdir(parents=True, exist_ok=True)
    for attempt in range(100):
        path = parent / (folder_name if attempt == 0 else f"{folder_name}-{attempt}")
        try:
            path.mkdir(_mode(shared))
        except FileExistsError:
            continue
        return path.resolve()
    raise FileExistsError(17, "a hundred runs of that name began in the same second", folder_name)


def _point_latest(parent: Path, path: Path) -> None:
    temporary = parent / f".{LATEST}.{os.getpid()}"
    with contextlib.suppress(OSError):  # a file system without links: the folder is still named on stderr
        temporary.symlink_to(path.name)
    with contextlib.suppress(OSError):  # `latest` may be a folder of the user's
        os.replace(temporary, parent / LATEST)
    with contextlib.suppress(OSError):
        temporary.unlink(missing_ok=True)


def private_folder() -> tuple[Path, str | None]:
    """`$TMPDIR/ddprof-<user id>`, or a fresh folder and the reason why that one was refused. Raises OSError.

    The name is the same for all processes of the user on this host, so that the tasks of one job find each other in it.
    Any user can make a folder of that name first: one that is not safely ours is refused, and a fresh one taken.
    """
    path = Path(tempfile.gettempdir()) / f"ddprof-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=_MODE)
    defect = _defect(path.lstat())
    if defect is None:
        return path, None
    return Path(tempfile.mkdtemp(prefix="ddprof-")), f"{path} is not used ({defect})"


def _defect(status: os.stat_result) -> str | None:
    """The reason why a folder cannot be trusted; for a link that of the link, never of its target."""
    if stat.S_ISLNK(status.st_mode):
        return "it is a link"
    if not stat.S_ISDIR(status.st_mode):
        return "it is no folder"
    if status.st_uid != os.getuid():
        return f"it belongs to user {status.st_uid}"
    if stat.S_IMODE(status.st_mode) & ~_MODE:
        return f"its mode is {stat.S_IMODE(status.st_mode):o}: others may enter it"
    return None
