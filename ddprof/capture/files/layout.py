"""Names of all files in a run folder (docs/run-folder.md); the only place that spells them."""

from __future__ import annotations

import re
import socket

SCHEMA = "ddprof.run/1"
LARGEST_RANK = 1 << 20  # as in readers/numbers.py; what lies beyond is damage
MANIFEST = "manifest.json"
CONTROL = "control.json"
TRACE_SUFFIX = ".pt.trace.json"
TENSORFLOW_SUFFIX = ".tf.trace.json"
FLIGHT_RECORDER_SUFFIX = ".fr.json"
SIDECAR_SUFFIX = ".sidecar.json"
RING_SUFFIX = ".ring"
CALLS_SUFFIX = ".calls"
END_SUFFIX = ".end.json"  # of a process that failed without a sidecar
ANSWER_SUFFIX = ".where.json"
FAULT_SUFFIX = ".threads.txt"
WORKERS_SUFFIX = ".workers.jsonl"
STACKS_SUFFIX = ".stacks.jsonl"
COUNTERS_SUFFIX = ".counters.jsonl"
COUNTERS_BY_MINUTE_SUFFIX = ".counters-by-minute.jsonl"

_STEM = re.compile(r"^rank(?P<rank>\d+)\.(?P<host>[^.]+)\.(?P<pid>\d+)\.(?P<restart>\d+)(?:\.(?P<window>\d+))?\.")


def host_label() -> str:
    """This host's name without dots, so that it is one field of a file name."""
    return re.sub(r"[^A-Za-z0-9_-]", "-", socket.gethostname()) or "host"


def rank_stem(rank: int, host: str, pid: int, restart: int) -> str:
    """`rank{R}.{host}.{pid}.{restart}`: unique per process of a job, also after an elastic restart."""
    return f"rank{rank}.{host}.{pid}.{restart}"


def parse_stem(name: str) -> dict[str, str | None] | None:
    """The fields of a file name of a run folder, or None where it is not one of ours."""
    match = _STEM.match(name)
    return match.groupdict() if match else None
