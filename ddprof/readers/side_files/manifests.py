"""The manifests of a run (docs/run-folder.md): start and end of its job, the machines, the ranks' timers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from ddprof.errors import NoUsableInput
from ddprof.readers.files.names import file_name
from ddprof.readers.files.remote import is_url
from ddprof.readers.files.streams import read_small
from ddprof.readers.numbers import one_rank
from ddprof.readers.side_files.lenient import parse
from ddprof.sidecar import Count, GpuTally, HostHardware, Rank, Sidecar, StepMedians, Topology, Whole
from ddprof.untrusted.plain_text import clean
from ddprof.untrusted.secrets import masked

_MAIN = "manifest.json"


class Manifest(Struct, frozen=True):
    """One `ddprof run` on its host: its command, quoted for a shell; what it saw of the host, and of the ranks by
    number; the job's name as its launcher shares it, its ranks there and its size; its end.
    """

    command: str = ""
    cwd: str = ""
    commit: str | None = None
    host: str | None = None
    topology: Topology | None = None
    gpus: tuple[GpuTally, ...] = ()
    step_times: dict[str, StepMedians] = {}
    job: str = ""
    ranks: tuple[Rank, ...] = ()
    world_size: Rank | None = None
    started_ns: Count | None = None
    ended_ns: Count | None = None
    exit_code: Whole | None = None
    hang: dict[str, object] | None = None  # as it was observed


def host_in_name(path: str) -> str:
    """The host that the name of a trace or a manifest states; "" where it is one of all hosts, or states none."""
    name = file_name(path)
    return "" if name == _MAIN else "".join(name.split(".")[1:2])


def read_hardware(manifests: Sequence[str], sidecar: Sidecar) -> HostHardware:
    """The machine under a sidecar's rank: its host's connections and its own GPU's counters, as far as known."""
    topology, gpu, uuid = None, None, _plain(sidecar.device.uuid)
    for manifest in map(_read, manifests):
        if manifest.host == sidecar.host:
            topology = topology or manifest.topology
            gpu = gpu or next((g for g in manifest.gpus if uuid is not None and _plain(g.uuid) == uuid), None)
    return HostHardware(topology or Topology(), gpu)


def read_step_times(manifests: Iterable[str]) -> Mapping[int, StepMedians]:
    """Step times of every rank by its own timers: all that is known of ranks without a trace."""
    timed = [(one_rank(rank), medians) for path in manifests for rank, medians in _read(path).step_times.items()]
    return {rank: medians for rank, medians in timed if rank is not None and medians.step_ns}


def read_commit(manifests: Iterable[str]) -> str:
    """The commit of the script's repository; "" where no manifest states one, or they differ."""
    stated = {commit for commit in (_read(path).commit for path in dict.fromkeys(manifests)) if commit}
    return clean(stated.pop()) if len(stated) == 1 else ""


def launch_of(manifests: Iterable[str]) -> Manifest | None:
    """The only one of these manifests, its command masked; None where nodes had different commands."""
    paths = sorted(set(manifests))
    launch = _read(paths[0]) if len(paths) == 1 else Manifest()
    return replace(launch, command=masked(launch.command)) if launch.command else None


def part_of_job(manifests: Iterable[str]) -> Manifest:
    """The common statement of one folder's manifests on their job; empty where they state nothing, or two jobs."""
    parts = [_read(path) for path in manifests]
    jobs, sizes = {part.job for part in parts if part.job}, {part.world_size for part in parts if part.world_size}
    if len(jobs) > 1 or len(sizes) != 1:
        return Manifest()
    ranks = sorted({rank for part in parts for rank in part.ranks})
    begun = [part.started_ns for part in parts if part.started_ns is not None]
    return Manifest(job="".join(jobs), ranks=tuple(ranks), world_size=sizes.pop(), started_ns=min(begun, default=None))


def run_end(folder: str) -> Manifest | None:
    """The main manifest of a run folder, which states the end of the job; None where it cannot be read."""
    path = os.path.join(folder, _MAIN)
    return _parsed(path) if is_url(path) or os.path.isfile(path) else None


def _read(path: str) -> Manifest:
    """A manifest of the run, cached as every rank of a host reads it; empty where it is unusable."""
    try:
        status = os.stat(path)
    except OSError:  # not on this file system, or gone
        return _parsed(path) or Manifest()
    return _remembered(path, status.st_size, status.st_mtime_ns) or Manifest()


@lru_cache(maxsize=8)
def _remembered(path: str, size_bytes: int, mtime_ns: int) -> Manifest | None:
    return _parsed(path)


def _parsed(path: str) -> Manifest | None:
    try:
        return parse(read_small(path), Manifest)[0]
    except (OSError, ValueError, TypeError, NoUsableInput):
        return None


def _plain(uuid: str | None) -> str | None:
    """A GPU's UUID as CUDA writes it, without NVML's prefix "GPU-"."""
    return uuid.removeprefix("GPU-").lower() if uuid else None
