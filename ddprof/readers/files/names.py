"""Meaning of file names: the rank, and parts that are only a time stamp or a window."""

from __future__ import annotations

import re

from ddprof.readers.numbers import one_rank
from ddprof.untrusted.plain_text import encodable

# Most explicit first. Digits must end at a separator, so that "rank12" is never read as rank 1.
_RANK = (
    re.compile(r"(?:^|[^a-z])(?:global[_-]?)?rank[_\-.=]?(\d+)(?!\d)", re.IGNORECASE),
    re.compile(r"(?:^|[^a-z])(?:worker|trainer|proc(?:ess)?)[_\-.=]?(\d+)(?!\d)", re.IGNORECASE),
    re.compile(r"(?:^|[_\-.])(?:r|gpu|dev(?:ice)?|node0?_gpu)[_\-=]?(\d{1,5})(?=$|[_\-.])", re.IGNORECASE),
    re.compile(r"^trace[_\-]?(\d{1,5})(?=$|[_\-.])", re.IGNORECASE),
)
# What capture writes: rank, host, process, restart, and of a trace its window. Host and process identify a rank's life.
_OURS = re.compile(
    r"^(?P<life>(?P<rank>rank\d+\.(?P<host>[^.]+))\.(?P<pid>\d+)\.(?P<restart>\d+))(?:\.(?P<window>\d+))?\."
)
# What torch.profiler.tensorboard_trace_handler writes: HOST_PID.TIMESTAMP. Digits are the host's ("gpu-worker-00").
_HOST_AND_PID = re.compile(r"^(?P<host>.+)_(?P<pid>\d+)\.\d{12,}$")
_COUNTER = re.compile(r"(?:step|iter(?:ation)?|epoch|window)$", re.IGNORECASE)
_STAMP = re.compile(r"\d{9,}")
_SUFFIX = re.compile(r"(?:\.(?:pt|trace|json|jsonl|gz|bz2|xz|sqlite|fr|pickle|pkl|log))+$", re.IGNORECASE)


def file_name(path: str) -> str:
    """The last component of a path or URL, in text that can be written anywhere."""
    return encodable(re.split(r"[/\\]", path.rstrip("/\\"))[-1])


def stem(path: str) -> str:
    """The file name without the suffixes of its packing."""
    return _SUFFIX.sub("", file_name(path))


def rank_in_name(path: str) -> int | None:
    """The rank in a file name (rank12, rank-3, worker0, x_r5, trace1); None without a credible one.

    Of a member ("runs.zip!trace1.json") its own name counts, as where it lies unpacked.
    """
    name = _own_stem(path)
    host = _HOST_AND_PID.match(name)
    if host and not _COUNTER.search(host["host"]):
        return one_rank(match[1]) if (match := _RANK[0].search(host["host"])) else None
    for pattern in _RANK:
        match = pattern.search(name)
        if match:
            return one_rank(match[1])
    return None


def is_numbered(path: str) -> bool:
    """True where the rank in a file name is a bare number: of one file, it may count a step or an attempt as well."""
    return not any(pattern.search(_own_stem(path)) for pattern in _RANK[:-1]) and rank_in_name(path) is not None


def _own_stem(path: str) -> str:
    return stem(path.rpartition("!")[2])


def name_of_ours(path: str) -> re.Match[str] | None:
    """The groups of a name that capture gave: `rank` (with `host`), `pid`, `restart`, all of these as `life`, `window`;
    None for other names.
    """
    return _OURS.match(file_name(path))


def process_in_name(path: str) -> str | None:
    """The job's process in the name of a file of a run folder; None without one."""
    ours = name_of_ours(path)
    return ours["life"] if ours else None


def without_stamp(path: str) -> str:
    """The stem without time stamps: equal for several windows of one process."""
    return _STAMP.sub("", stem(path)).strip("._-")


_TRACE = re.compile(r"\.trace\.json(?:\.\w{2,4})?$")  # of torch's handler, `ddprof run` and TensorFlow


def is_name_of_trace(path: str) -> bool:
    """True for a name that profilers give to traces, and nobody to settings."""
    return _TRACE.search(file_name(path)) is not None


def host_in_name(path: str, pid: int | None) -> str | None:
    """Host in a file name of tensorboard_trace_handler; trusted only where its pid is the trace's."""
    match = _HOST_AND_PID.match(stem(path))
    return match["host"] if match and pid is not None and int(match["pid"]) == pid else None


def host_in_any_name(path: str) -> str | None:
    """Host in the name of a file of a run folder or of tensorboard_trace_handler; unverified, for selection only."""
    match = name_of_ours(path) or _HOST_AND_PID.match(stem(path))
    return match["host"] if match else None
