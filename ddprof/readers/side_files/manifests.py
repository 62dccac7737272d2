"""The manifests of a run (docs/run-folder.md): start and end of its job, the machines, the ranks' timers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar

from msgspec import Struct

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
Form = TypeVar("Form", bound=Struct)


class Manifest(Struct, frozen=True):
    """Observations of one `ddprof run` on its host, and on the job's ranks by number."""

    host: str | None = None
    topology: Topology | None = None
    gpus: tuple[GpuTally, ...] = ()
    step_times: dict[str, StepMedians] = {}
    commit: str | None = None


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


def _read(path: str) -> Manifest:
    """A manifest of the run, cached as every rank of a host reads it; empty where it is unusable."""
    try:
        status = os.stat(path)
    except OSError:  # not on this file system, or gone
        return _parsed_as(path, Manifest)
    return _remembered(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=8)
def _remembered(path: str, size_bytes: int, mtime_ns: int) -> Manifest:
    return _parsed_as(path, Manifest)


def _parsed_as(path: str, form: type[Form]) -> Form:
    """A manifest as the given type; empty where it is unusable."""
    try:
        return parse(read_small(path), form)[0]
    except (OSError, ValueError, TypeError, NoUsableInput):
        return form()


def _plain(uuid: str | None) -> str | None:
    """A GPU's UUID as CUDA writes it, without NVML's prefix "GPU-"."""
    return uuid.removeprefix("GPU-").lower() if uuid else None


class Launch(Struct, frozen=True):
    """The job's command, quoted for a shell, and its working directory, from a manifest."""

    command: str = ""
    cwd: str = ""


def launch_of(manifests: Iterable[str]) -> Launch | None:
    """The job's launch by these manifests; None where nodes had different commands."""
    paths = sorted(set(manifests))
    if len(paths) != 1:
        return None
    launch = _parsed_as(paths[0], Launch)
    return Launch(masked(launch.command), launch.cwd) if launch.command else None


class PartOfJob(Struct, frozen=True):
    """The manifests of one folder: the job's name as its launcher shares it, its ranks there, and its size."""

    job: str = ""
    ranks: tuple[Rank, ...] = ()
    world_size: Rank | None = None
    started_ns: Count | None = None


def part_of_job(manifests: Iterable[str]) -> PartOfJob:
    """The common statement of one folder's manifests; empty where they state nothing, or two jobs."""
    parts = [_parsed_as(path, PartOfJob) for path in manifests]
    jobs, sizes = {part.job for part in parts if part.job}, {part.world_size for part in parts if part.world_size}
    if len(jobs) > 1 or len(sizes) != 1:
        return PartOfJob()
    ranks = sorted({rank for part in parts for rank in part.ranks})
    begun = [part.started_ns for part in parts if part.started_ns is not None]
    return PartOfJob("".join(jobs), tuple(ranks), sizes.pop(), min(begun, default=None))


class RunEnd(Struct, frozen=True):
    """End of a run by its manifest: exit code, time, and observations of a hang."""

    exit_code: Whole | None = None
    ended_ns: Count | None = None
    hang: dict[str, object] | None = None


def run_end(folder: str) -> RunEnd | None:
    """The end of the job of a run folder; None where no manifest states it."""
    manifest = os.path.join(folder, _MAIN)
    if not is_url(manifest) and not os.path.isfile(manifest):
        return None
    try:
        return parse(read_small(manifest), RunEnd)[0]
    except (ValueError, TypeError, NoUsableInput):
        return None
