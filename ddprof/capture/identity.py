"""Rank of this process, from c10d or else the launcher's environment variables."""

from __future__ import annotations

import itertools
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddprof.capture.files.layout import SIDECAR_SUFFIX, host_label, rank_stem
from ddprof.capture.files.storage import text_of

# (rank, world size, local rank) as each launcher spells them, most specific first: under Horovod or MPI a stale RANK
# may also be set.
_LAUNCHERS = (
    ("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK"),
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
)


@dataclass(frozen=True)
class RankIdentity:
    """A rank's process. `rank_source`: "c10d", an environment variable, or "single"."""

    rank: int
    world_size: int
    local_rank: int | None
    host: str
    pid: int
    restart: int
    rank_source: str
    boot_id: str | None

    @property
    def stem(self) -> str:
        """The start of every file name of this process."""
        return rank_stem(self.rank, self.host, self.pid, self.restart)


_EARLIER: dict[int, int] = {}  # by process: programs that were ranks before they replaced themselves (os.execv)


def identify(folder: Path | None = None) -> RankIdentity:
    """The identity as known so far: exact once a process group exists. `folder`: has the files of earlier programs."""
    pid = os.getpid()
    restart = _integer("TORCHELASTIC_RESTART_COUNT") or 0
    rank, world_size, local_rank, source = _from_environment()
    if (distributed := joined()) is not None:
        rank, world_size, source = distributed.get_rank(), distributed.get_world_size(), "c10d"
    if folder is not None and pid not in _EARLIER:
        stems = (rank_stem(rank, host_label(), pid, restart + count) for count in itertools.count())
        _EARLIER[pid] = next(n for n, stem in enumerate(stems) if not (folder / f"{stem}{SIDECAR_SUFFIX}").exists())
    return RankIdentity(
        rank=rank,
        world_size=world_size,
        local_rank=local_rank,
        host=host_label(),
        pid=pid,
        restart=restart + _EARLIER.get(pid, 0),
        rank_source=source,
        boot_id=boot_id(),
    )


def joined() -> Any:
    """torch.distributed, once this process is in a process group; else None."""
    distributed = sys.modules.get("torch.distributed")
    is_joined = distributed is not None and distributed.is_available() and distributed.is_initialized()
    return distributed if is_joined else None


def boot_id() -> str | None:
    """Identity of the running kernel, and so of the clock; containers on a host share it."""
    return text_of("/proc/sys/kernel/random/boot_id").strip() or None


def _from_environment() -> tuple[int, int, int | None, str]:
    for rank_name, size_name, local_name in _LAUNCHERS:
        rank, size = _integer(rank_name), _integer(size_name)
        if rank is not None and size is not None:
            return rank, size, _integer(local_name), rank_name
    return 0, 1, _integer("LOCAL_RANK"), "single"


def _integer(name: str) -> int | None:
    value = os.environ.get(name, "")
    return int(value) if value.isdigit() else None
