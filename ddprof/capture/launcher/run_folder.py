"""The run folder before the job starts: made anew, or joined by several `ddprof run` of one job."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from ddprof.capture.files.layout import MANIFEST, host_label

LATEST = "latest"


@dataclass(frozen=True)
class RunFolder:
    """Where a run is kept. `fallback_reason` says why it is not where it was asked for."""

    path: Path
    manifest: Path
    fallback_reason: str | None = None


def create(parent: Path, name: str, now_s: float) -> RunFolder:
    """Make `<parent>/<utc>-<name>/` and point `latest` at it.

    Where the parent cannot be written the run goes to the temporary folder, because a read-only directory must not stop
    a job. Raises OSError if that fails as well.
    """
    label = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "run"
    job = shared_job_id()
    if job is not None:
        return join(parent / f"{label}-{job}")
    folder_name = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(now_s))}-{label}"
    reason = None
    try:
        path = _make(parent, folder_name)
    except OSError as error:
        reason = f"{parent} cannot be written ({error.strerror})"
        parent = Path(tempfile.gettempdir()) / "ddprof-runs"
        path = _make(parent, folder_name)
    _point_latest(parent, path)
    return RunFolder(path, path / MANIFEST, reason)


def shared_job_id() -> str | None:
    """What all tasks of one `srun ddprof run` or `mpirun ddprof run` call their job; None outside of them."""
    step = os.environ.get("SLURM_STEP_ID")
    if step is not None and os.environ.get("SLURM_STEP_NUM_TASKS", os.environ.get("SLURM_NTASKS", "1")) != "1":
        return f"slurm{os.environ.get('SLURM_JOB_ID', '')}.{step}"
    namespace = os.environ.get("PMIX_NAMESPACE")
    if namespace and os.environ.get("OMPI_COMM_WORLD_SIZE", "1") != "1":
        return "mpi" + re.sub(r"[^A-Za-z0-9]+", "-", namespace).strip("-")
    return None


def join(path: Path) -> RunFolder:
    """Use this very folder, created if need be: several `ddprof run` of one job write into it. Raises OSError."""
    path.mkdir(parents=True, exist_ok=True)
    manifest = path / MANIFEST
    try:
        # Exactly one of them gets the main manifest and leads: it asks for windows.
        manifest.open("x", encoding="utf-8").close()
    except FileExistsError:
        manifest = path / f"manifest.{host_label()}.{os.getpid()}.json"
    return RunFolder(path.resolve(), manifest)


def _make(parent: Path, folder_name: str) -> Path:
    parent.mkdir(parents=True, exist_ok=True)
    for attempt in range(100):
        path = parent / (folder_name if attempt == 0 else f"{folder_name}-{attempt}")
        try:
            path.mkdir()
        except FileExistsError:
            continue
        return path.resolve()
    raise FileExistsError(17, "a hundred runs of that name began in the same second", folder_name)


def _point_latest(parent: Path, path: Path) -> None:
    temporary = parent / f".{LATEST}.{os.getpid()}"
    with contextlib.suppress(OSError):  # a file system without links: the folder is still named on stderr
        temporary.symlink_to(path.name)
        os.replace(temporary, parent / LATEST)
